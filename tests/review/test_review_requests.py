"""Requests of others are refused or served, never with a traceback, and never with a file outside."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from review_server import Server, labels_of, made_photos

pytestmark = pytest.mark.slow  # servers are started

JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("requests")
    with Server(made_photos(folder / "photos"), folder / "labels") as running:
        running.fitted()
        yield running
        code, said = running.interrupt()
        assert code == 0
        assert "Traceback" not in said
        assert "a request failed" not in said


def raw(server, text, end=False):
    """Send bytes as they are, and perhaps that no more will come; return all that comes back."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        connection.sendall(text)
        if end:
            connection.shutdown(socket.SHUT_WR)
        parts = []
        while part := connection.recv(65_536):
            parts.append(part)
    return b"".join(parts)


def test_the_page_is_served_with_a_strict_policy(server):
    answer = raw(
        server,
        f"GET /{server.token}/ HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nConnection: close\r\n\r\n".encode(),
    ).decode()
    assert answer.startswith("HTTP/1.1 200")
    assert "default-src 'none'; script-src 'self'" in answer
    assert "unsafe" not in answer
    assert "nosniff" in answer
    assert re.findall(r'(?:src|href)="(?!#|static/)[^"]*"', answer) == []


def test_without_the_token_nothing_is_answered(server):
    for path in ("", "state", "items", "picture/small/0", "static/main.js", "decisions"):
        for token in ("", "x", server.token[:-1], server.token + "x", server.token.swapcase()):
            status, content = server.ask(path, token=token)
            assert status == 403
            assert b"token" in content


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example", "[::1]", ""])
def test_another_host_is_refused(server, host):
    assert server.ask("state", headers={"host": host})[0] in (400, 421)


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1", "http://127.0.0.1:1"])
def test_another_origin_is_refused(server, origin):
    before = server.state()["version"][0]
    assert server.ask("state", headers={"origin": origin})[0] == 403
    body = json.dumps({"id": "another-origin", "kind": "label", "items": [20], "label": "red"})
    assert server.ask("decisions", "POST", body, {**JSON, "origin": origin})[0] == 403
    assert server.state()["version"][0] == before


def test_the_page_itself_may_ask(server):
    for name in ("127.0.0.1", "localhost"):
        host = f"{name}:{server.port}"
        headers = {"host": host, "origin": f"http://{host}", "sec-fetch-site": "same-origin"}
        assert server.ask("state", headers=headers)[0] == 200
    assert server.ask("state", headers={"sec-fetch-site": "cross-site"})[0] == 403


@pytest.mark.parametrize(
    "path",
    [
        *("../labels.csv", "static/../state.py", "static/..%2fstate.py", "static/%2e%2e/app.py"),
        *("picture/small/../../0", "picture/small/-1", "picture/small/99999", "picture/small/1e3", "picture/huge/0"),
        *("item/99999", "item/a", "static//etc/passwd", "static/", "history?before=-1", "nowhere"),
        "static/main.js%00.css",
    ],
)
def test_there_is_nothing_outside(server, path):
    status, content = server.ask(path)
    assert status in (403, 404) or (status == 200 and content.startswith(b"<svg"))
    assert b"import" not in content
    assert b"root:" not in content


def test_paths_out_of_the_token_are_refused_as_they_are(server):
    for path in (f"/{server.token}/../../etc/passwd", "/../etc/passwd", f"//{server.token}/static/../../x"):
        request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nConnection: close\r\n\r\n"
        answer = raw(server, request.encode())
        assert answer.split(b" ")[1] in (b"403", b"404")


def test_large_and_wrong_bodies_are_refused(server):
    megabyte = json.dumps({"id": "a-megabyte", "kind": "label", "items": [1] * 500_000, "label": "red"})
    assert len(megabyte) > 1_000_000
    assert server.ask("decisions", "POST", megabyte, JSON)[0] == 413
    chunk = f"{len(megabyte):x}\r\n{megabyte}\r\n0\r\n\r\n"
    head = f"POST /{server.token}/decisions HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
    kind = "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    assert raw(server, f"{head}{kind}{chunk}".encode()).split(b" ")[1] == b"413"
    for body in ("", "{", "[]", "3", '"x"', "[" * 100_000, '{"id": 3}', '{"id": "12345678", "kind": "what"}'):
        assert server.ask("decisions", "POST", body, JSON)[0] == 400
    assert server.ask("decisions", "POST", "{}", {"content-type": "text/plain"})[0] == 415
    assert server.ask("decisions", "DELETE")[0] == 405
    assert server.ask("x" * 5_000)[0] == 414


@pytest.mark.parametrize(
    "fields",
    [
        *({"items": items} for items in ([], [10**9], [-1], ["0"], [True], [1.5], "0", None)),
        *({"items": [0], "label": label} for label in ("", "x" * 300, 3, None, "_hidden", "Unknown", "a\x07b")),
    ],
)
def test_decisions_that_make_no_sense_are_refused_with_a_sentence(server, fields):
    before = server.state()["version"][0]
    status, answer = server.decide("label", **{"label": "red", **fields})
    assert status == 400
    assert answer["error"].endswith(".")
    assert server.state()["version"][0] == before


def test_what_is_not_http_does_no_harm(server):
    for text in (b"\x00" * 100, b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00", b"GET " + b"a" * 100_000):
        with contextlib.suppress(ConnectionError):  # it may hang up at once
            raw(server, text, end=True)
    assert server.ask("state")[0] == 200


def test_two_hundred_requests_at_once_are_answered(server):
    gate = threading.Barrier(200)

    def one(number):
        gate.wait()
        path = ("state", f"picture/small/{number % 60}", f"item/{number % 60}", "search?q=red")[number % 4]
        return server.ask(path)[0]

    with ThreadPoolExecutor(200) as pool:
        statuses = list(pool.map(one, range(200)))
    assert set(statuses) <= {200, 503}
    assert statuses.count(200) > 150


def test_pictures_are_encoded_anew(server):
    status, content = server.ask("picture/small/0")
    assert status == 200
    assert content.startswith(b"\xff\xd8")  # a JPEG, and the file is a PNG


def test_it_listens_on_this_machine_alone(server):
    outside = socket.gethostbyname(socket.gethostname())
    if outside == "127.0.0.1":
        pytest.skip("this machine has no other address")
    with pytest.raises(OSError, match=r"refused|unreachable|timed out"):
        socket.create_connection((outside, server.port), timeout=5)


def test_a_second_server_on_the_same_folder_is_refused_by_name(server):
    with pytest.raises(AssertionError, match=rf"process {server.process.pid} .*127\.0\.0\.1:{server.port}"):
        Server(server.out.parent / "photos", server.out)


def test_labels_and_repeated_requests_are_counted_once(server):
    before = server.state()["version"][0]
    first = server.decide("label", "the-same-identity", items=[60, 61], label="red")
    again = server.decide("label", "the-same-identity", items=[60, 61], label="red")
    assert first[1]["number"] == again[1]["number"] == before + 1
    assert (first[1]["new"], again[1]["new"]) == (True, False)
    server.fitted(before + 1)
    names = json.loads(server.ask("items")[1])["names"]
    assert server.state()["counts"]["accepted"] >= 2
    for _ in range(100):
        if labels_of(server.out)[names[60]] == ("red", "accepted"):
            break
        threading.Event().wait(0.05)
    assert labels_of(server.out)[names[61]] == ("red", "accepted")
