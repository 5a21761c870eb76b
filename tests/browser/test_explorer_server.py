"""What the explorer's server lets in and sends out, and how its command fails."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request

import pytest
from click.testing import CliRunner

from latency_model.cli import main
from latency_model.errors import InputError
from latency_model.views.explorer.app import build, serve

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def client():
    return build().server.test_client()


@pytest.mark.parametrize("path", ["/", "/_dash-layout", "/_dash-dependencies", "/assets/explorer.js", "/nowhere"])
def test_every_answer_says_what_the_page_may_load(client, path):
    with client.get(path) as response:
        headers = response.headers
    policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["form-action"] == "'none'"
    assert policy["connect-src"] == "'self'"
    assert "unsafe" not in policy["script-src"]
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"


def test_the_page_names_no_other_host(client):
    assert "https://" not in client.get("/").text.split('<script id="_dash-config"')[0]
    assert "://" not in client.get("/_dash-layout").text


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8050", "localhost:8050", "[::1]:8050", "localhost", "LOCALHOST", "127.0.0.2:8050"]
)
def test_names_of_this_machine_are_answered(client, host):
    assert client.get("/", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        *("rebound.example", "rebound.example:8050", "127.0.0.1.example", "10.0.0.1", "[::1", "", "localhost/x"),
        *("localhost:8050,rebound.example", "a@localhost", "rebound.example\\@localhost", "localhost:port"),
    ],
)
def test_other_names_are_not(client, host):
    assert client.get("/", headers={"Host": host}).status_code == 403


def test_another_page_cannot_ask(client):
    for origin in ("https://elsewhere.example", "null", "http://localhost:9999", "http://["):
        response = client.post("/_dash-update-component", json={}, headers={"Origin": origin, "Host": "localhost:8050"})
        assert response.status_code == 403, origin


def test_served_to_a_network_every_name_is_answered():
    client = build(local=False).server.test_client()
    assert client.get("/", headers={"Host": "server.example:8050"}).status_code == 200
    behind_encryption = {"Host": "server.example", "Origin": "https://server.example"}
    assert client.get("/_dash-layout", headers=behind_encryption).status_code == 200
    behind_encryption["Origin"] = "https://elsewhere.example"
    assert client.get("/_dash-layout", headers=behind_encryption).status_code == 403


def test_a_state_that_no_page_wrote_is_a_sentence(client):
    callback = next(entry for entry in client.get("/_dash-dependencies").json if entry["output"] == "download.data")
    body = {
        "output": "download.data",
        "outputs": {"id": "download", "property": "data"},
        "inputs": [entry | {"value": 1} for entry in callback["inputs"]],
        "changedPropIds": ["save-csv.n_clicks"],
        "state": [{"id": "state", "property": "data", "value": {"batch": "many"}}],
    }
    response = client.post("/_dash-update-component", json=body)
    assert response.status_code == 400
    assert response.text == "batch must be a whole number from 1 to 4096, got 'many'\n"


def test_a_request_beyond_the_limit_is_refused(client):
    body = b'{"output": "' + b"x" * (7 << 20) + b'"}'
    response = client.post("/_dash-update-component", data=body, content_type="application/json")
    assert response.status_code == 413


def test_nothing_is_left_of_tools_for_developers(client):
    for path in ("/_mcp", "/_dash-error", "/console", "/assets/../app.py", "/assets/%2e%2e/app.py"):
        response = client.get(path)
        assert response.status_code in (403, 404) or b"react-entry-point" in response.data, path


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--port", "70000"], "port must be from 0 (any free one) to 65535, got 70000"),
        (["--port", "-1"], "port must be from 0"),
        (["--host", "no such host"], "host 'no such host' is not known"),
        (["--host", "192.0.2.1"], "host '192.0.2.1' is not an address of this machine"),
        (["--host", ""], "host '' is not known"),
    ],
)
def test_an_address_that_cannot_be_listened_on_is_a_sentence(arguments, sentence):
    shown = CliRunner().invoke(main, ["explore", *arguments])
    assert shown.exit_code == 1
    assert shown.stdout == ""
    assert sentence in shown.stderr
    assert shown.stderr.count("\n") == 1


def test_a_port_in_use_is_a_sentence():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f"port {port} of 127.0.0.1 is in use; choose another one"):
            serve("127.0.0.1", port, ready=pytest.fail)


def test_the_command_serves_until_it_is_interrupted():
    command = [sys.executable, "-m", "latency_model", "explore", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        watch = threading.Timer(120, process.kill)
        watch.start()
        url = process.stdout.readline().strip()
        with urllib.request.urlopen(url) as response:
            assert b"latency-model explorer" in response.read()
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(urllib.request.Request(url, headers={"Host": "rebound.example"}))
        process.send_signal(2)
        _, said = process.communicate()
        watch.cancel()
    assert process.returncode == 0
    assert said == "Press Ctrl-C to stop.\n"
