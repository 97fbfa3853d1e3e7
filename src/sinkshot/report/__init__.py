"""Result -> pages: one self-contained HTML file each. Nothing here is imported before a page is asked for."""
