"""One pool of more rows than memory holds: the methods of `sinkshot.methods` on arrays that live in files.

A method sees a pool through `Rows`: products with class weights, and arrays of class values [R, way, N]. Here these
arrays are in parts (`PartedArray`). What is computed row by row stays an expression until a sum over all rows needs it;
a sum is one pass over the parts, on threads, processes or a cluster, that returns small arrays. So the same function
runs on a pool in memory and on one in parts.

    direct_lines  connections to workers, for short passes
    work_folder   where a run keeps its files, and who works on the parts
    array         arrays in parts and their namespace, which follows the array API
    pool          a bank in parts, preprocessed and sorted into cells of similar rows
    sorted_rows   where the rows of a pool stand in the sorted parts of its bank
    cell_files    k-means cells (`sinkshot.kernels.cells`) in a file
    neighbours    nearest rows by cells
    graph         who reads whose values, and averages over it
    solve         run a method on it
"""
