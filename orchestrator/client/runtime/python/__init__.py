"""MCP tools, and the run's readers, for a script that mcpx runs.

    from mcpx import tools, emit, artifact, input, log, result, ToolError

    page = tools.browser.navigate(url="http://127.0.0.1:8000/")
    shot = tools.browser.take_screenshot({"format": "png"})
    artifact("shot.png", shot)

Calls block, and may be made from several threads at once; in asyncio, use
asyncio.to_thread. Only the standard library is used, and little of it until
the first call.
"""

import os as _os

__all__ = ["tools", "emit", "artifact", "input", "log", "result", "ToolError", "MCPXError"]


class MCPXError(Exception):
    """What mcpx could not or would not do.

    code is a word for programs, hint says what would help, field is what was
    wrong in what was sent; status is 0 when no answer came.
    """

    def __init__(self, detail, *, code="internal", hint=None, field=None, status=0):
        super().__init__(detail if not hint else "%s (%s)" % (detail, hint))
        self.detail = detail
        self.code = code
        self.hint = hint
        self.field = field
        self.status = status


class ToolError(MCPXError):
    """A tool that reported an error (code "tool_error"), or a call that was not made.

    raw is the tool's whole CallToolResult, None when there is none. diagnostics
    is a dict of what is known: code, detail, hint, field, status.
    """

    def __init__(self, server, tool, detail, *, raw=None, code="tool_error", hint=None, field=None, status=0):
        super().__init__("%s.%s: %s" % (server, tool, detail), code=code, hint=hint, field=field, status=status)
        self.server = server
        self.tool = tool
        self.detail = detail
        self.raw = raw
        known = {"code": code, "detail": detail, "hint": hint, "field": field, "status": status or None}
        self.diagnostics = {name: value for name, value in known.items() if value is not None}


# A tool's value knows its envelope as .raw; None, numbers and booleans can't.


class _Dict(dict):
    raw = None


class _List(list):
    raw = None


class _Text(str):
    raw = None


_CARRIERS = {dict: _Dict, list: _List, str: _Text}


# ---- HTTP: a connection is used by one thread at a time and kept for the next.

_IDLE_SECONDS = 60  # the other side hangs up later than that
_idle = []  # append and pop are atomic


def _forget():
    del _idle[:]


if hasattr(_os, "register_at_fork"):
    _os.register_at_fork(after_in_child=_forget)


class _Connection:
    def __init__(self):
        self.socket = _connect()
        self.file = self.socket.makefile("rb")
        self.since = 0.0

    def close(self):
        self.file.close()
        self.socket.close()

    def alive(self, now):
        """False when the other side has hung up: a call must not be sent into the void."""
        if now - self.since > _IDLE_SECONDS:
            return False
        try:
            self.socket.setblocking(False)
            self.socket.recv(1)
        except BlockingIOError:
            self.socket.setblocking(True)
            return True
        except OSError:
            pass
        return False


def _connect():
    import socket

    path = _os.environ.get("MCPX_SOCKET")
    if path and hasattr(socket, "AF_UNIX"):
        direct = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            direct.connect(path)
            return direct
        except OSError:
            direct.close()  # the endpoint is another way to it
    endpoint = _os.environ.get("MCPX_ENDPOINT")
    if not endpoint:
        raise MCPXError("this program does not run under mcpx: MCPX_ENDPOINT is not set", code="no_endpoint")
    host, _, port = endpoint.split("//", 1)[-1].rstrip("/").rpartition(":")
    try:
        relayed = socket.create_connection((host.strip("[]"), int(port)))
    except (OSError, ValueError) as why:
        raise MCPXError("connect to %s: %s" % (endpoint, why), code="no_endpoint") from why
    relayed.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return relayed


def _take():
    import time

    while _idle:
        try:
            connection = _idle.pop()
        except IndexError:
            break
        if connection.alive(time.monotonic()):
            return connection
        connection.close()
    return _Connection()


def _keep(connection):
    import time

    connection.since = time.monotonic()
    _idle.append(connection)


def _line(file):
    line = file.readline(65537)
    if not line.endswith(b"\n"):
        raise EOFError("the answer ended early")
    return line.strip()


def _exactly(file, size):
    data = file.read(size)
    if len(data) != size:
        raise EOFError("the answer ended early")
    return data


def _answer(file):
    """Reads one HTTP answer: status, headers, body."""
    status = int(_line(file).split(b" ", 2)[1])
    headers = {}
    while True:
        line = _line(file)
        if not line:
            break
        name, _, value = line.partition(b":")
        headers[name.strip().lower()] = value.strip()
    if status == 204 or status == 304:
        return status, headers, b""
    if headers.get(b"transfer-encoding", b"").lower() == b"chunked":
        parts = []
        while True:
            size = int(_line(file).split(b";", 1)[0], 16)
            if size == 0:
                break
            parts.append(_exactly(file, size))
            _line(file)
        while _line(file):
            pass
        return status, headers, b"".join(parts)
    if b"content-length" in headers:
        return status, headers, _exactly(file, int(headers[b"content-length"]))
    headers[b"connection"] = b"close"
    return status, headers, file.read()


def _request(method, path, body=b"", content_type="application/json"):
    """Makes one request, once. body is bytes, or a file and its size."""
    source, size = body if isinstance(body, tuple) else (None, len(body))
    head = "%s %s HTTP/1.1\r\nHost: mcpx\r\nContent-Length: %d\r\n" % (method, path, size)
    if content_type:
        head += "Content-Type: %s\r\n" % content_type
    connection = _take()
    whole = False
    try:
        try:
            connection.socket.sendall(head.encode("ascii") + b"\r\n" + (b"" if source else body))
            while source and size > 0:
                chunk = source.read(min(size, 1 << 18))
                if not chunk:
                    raise EOFError("the file became shorter while it was sent")
                connection.socket.sendall(chunk)
                size -= len(chunk)
        except (BrokenPipeError, ConnectionResetError):
            pass  # refused before it was read whole; the answer says why
        status, headers, data = _answer(connection.file)
        whole = headers.get(b"connection", b"").lower() != b"close"
    except (OSError, EOFError, ValueError, IndexError) as why:
        raise MCPXError("%s %s: no whole answer, so whether it was done is not known: %s" % (method, path, why or type(why).__name__),
                        code="connection_lost") from why
    finally:
        if whole:
            _keep(connection)
        else:
            connection.close()
    return status, data


def _problem(status, data):
    """What an answer other than 2xx says, as keyword arguments of an error."""
    import json

    try:
        said = json.loads(data)
    except ValueError:
        said = None
    if not isinstance(said, dict):
        said = {"detail": "HTTP status %d" % status}
    return {"detail": said.get("detail") or said.get("title") or "HTTP status %d" % status,
            "code": said.get("code") or "internal", "hint": said.get("hint"), "field": said.get("field"), "status": status}


def _send(method, path, body=b"", content_type="application/json"):
    status, data = _request(method, path, body, content_type)
    if not 200 <= status < 300:
        raise MCPXError(**_problem(status, data))
    return data


def _quote(text):
    """Escapes a path's segment; urllib would take longer to import than to call."""
    safe = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-~"
    if text.strip(".") != "":
        safe += b"."
    return "".join(chr(b) if b in safe else "%%%02X" % b for b in text.encode("utf-8", "surrogatepass"))


def _encode(value):
    import json

    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8", "surrogatepass")


# ---- Tools.


class _Function:
    """One tool. Call it with keyword arguments, or with one dict where a name is
    not an identifier; .raw(...) gives the whole CallToolResult, and does not
    raise when the tool itself reports an error."""

    __slots__ = ("_server", "_tool", "__name__")

    def __init__(self, server, tool, name):
        self._server = server
        self._tool = tool
        self.__name__ = name

    def __repr__(self):
        return "<tool %s of %s>" % (self._tool, self._server)

    def __call__(self, arguments=None, /, **named):
        answer = self._post(arguments, named)
        raw = answer.get("raw")
        if answer.get("isError"):
            raise ToolError(self._server, self._tool, answer.get("text") or "the tool reported an error", raw=raw)
        value = answer.get("value")
        carrier = _CARRIERS.get(type(value))
        if carrier is not None:
            value = carrier(value)
            value.raw = raw
        return value

    def raw(self, arguments=None, /, **named):
        return self._post(arguments, named).get("raw")

    def _post(self, arguments, named):
        import json

        if arguments is None:
            arguments = named
        elif named:
            raise TypeError("%s takes one dict or keyword arguments, not both" % self.__name__)
        elif not isinstance(arguments, dict):
            raise TypeError("%s takes keyword arguments or one dict, not %s" % (self.__name__, type(arguments).__name__))
        try:
            status, data = _request("POST", "/v1/call/%s/%s" % (_quote(self._server), _quote(self._tool)), _encode(arguments))
        except MCPXError as why:
            raise ToolError(self._server, self._tool, why.detail, code=why.code) from why
        if not 200 <= status < 300:
            raise ToolError(self._server, self._tool, **_problem(status, data))
        return json.loads(data)


def _unknown(what, name, known):
    import difflib

    near = difflib.get_close_matches(name, known, 3, 0.5)
    text = "no %s %r" % (what, name)
    if near:
        text += "; did you mean %s?" % " or ".join(near)
    elif known:
        text += "; there are %s" % ", ".join(sorted(known)[:20])
    return AttributeError(text)


class _Namespace:
    def __init__(self, name, entry):
        self.__dict__["_of"] = (name, entry)

    def __repr__(self):
        return "<tools of %s>" % self._of[1]["server"]

    def __dir__(self):
        return sorted(self._of[1]["tools"])

    def __getattr__(self, function):
        name, entry = self._of
        tool = entry["tools"].get(function)
        if tool is None:
            if not entry.get("open") or function.startswith("__"):
                raise _unknown("tool in tools.%s:" % name, function, list(entry["tools"]))
            tool = function
        made = _Function(entry["server"], tool, function)
        self.__dict__[function] = made
        return made

    def __getitem__(self, name):
        for function, tool in self._of[1]["tools"].items():
            if name == tool:
                return getattr(self, function)
        return getattr(self, name)


class _Tools:
    def _entries(self):
        entries = self.__dict__.get("_index")
        if entries is None:
            import json

            with open(_os.path.join(_os.path.dirname(_os.path.abspath(__file__)), "index.json"), "rb") as file:
                entries = json.load(file)
            self.__dict__["_index"] = entries
        return entries

    def __repr__(self):
        return "<tools of %s>" % (", ".join(dir(self)) or "no server")

    def __dir__(self):
        return sorted(self._entries())

    def __getattr__(self, name):
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        entry = self._entries().get(name)
        if entry is None:
            raise _unknown("namespace", name, list(self._entries()))
        made = _Namespace(name, entry)
        self.__dict__[name] = made
        return made

    def __getitem__(self, server):
        for name, entry in self._entries().items():
            if entry["server"] == server:
                return getattr(self, name)
        return getattr(self, server)


tools = _Tools()


# ---- The run's readers.


def emit(value):
    """Hands a JSON value to the run's readers at once."""
    _send("POST", "/v1/emit", _encode(value))


def result(value):
    """Sets the run's result; the last one stands."""
    _send("POST", "/v1/result", _encode(value))


class _Log:
    def _say(self, level, values):
        try:
            _send("POST", "/v1/log", _encode({"level": level, "message": " ".join(str(v) for v in values)}))
        except MCPXError as why:
            # A script must not fail for a line about it.
            if not self.__dict__.get("_told"):
                self.__dict__["_told"] = True
                import sys

                print("mcpx: log: %s" % why, file=sys.stderr)

    def debug(self, *values):
        self._say("debug", values)

    def info(self, *values):
        self._say("info", values)

    def warn(self, *values):
        self._say("warn", values)

    warning = warn

    def error(self, *values):
        self._say("error", values)


log = _Log()


def artifact(name, data, *, mime=None):
    """Keeps data as an artifact and returns what it became: id, uri, size, sha256.

    data: text, bytes, a path (os.PathLike or {"path": ...}), an MCP image, audio
    or resource block, or a tool's value or CallToolResult that carries one.
    """
    import json

    path = _path(data)
    if path is not None:
        with open(path, "rb") as file:
            return _upload(name, (file, _os.fstat(file.fileno()).st_size), mime, json)
    body, found = _content(data)
    return _upload(name, body, mime or found, json)


def _upload(name, body, mime, json):
    return json.loads(_send("POST", "/v1/artifacts?name=" + _quote(str(name)), body, mime))


def _path(data):
    if isinstance(data, _os.PathLike):
        return _os.fspath(data)
    if isinstance(data, dict) and "path" in data and "type" not in data and len(data) == 1:
        return data["path"]
    return None


def _content(data):
    """Bytes and type of anything that artifact takes."""
    raw = getattr(data, "raw", None)
    if isinstance(data, str):
        block = _block(raw)
        return block if block else (data.encode("utf-8", "surrogatepass"), "text/plain; charset=utf-8")
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data), None
    block = _block(data) or _block(raw)
    if block is None:
        raise TypeError("artifact takes text, bytes, a path, an MCP image, audio or resource block, or a result that carries one, "
                        "not %s" % type(data).__name__)
    return block


def _block(data):
    """The first block of data that holds bytes: data may be a block, a list of them, or an envelope."""
    import base64

    if isinstance(data, list):
        for item in data:
            found = _block(item)
            if found:
                return found
        return None
    if not isinstance(data, dict):
        return None
    if data.get("type") in ("image", "audio") and isinstance(data.get("data"), str):
        return base64.b64decode(data["data"]), data.get("mimeType")
    if data.get("type") == "resource" and isinstance(data.get("resource"), dict):
        inner = data["resource"]
        if isinstance(inner.get("blob"), str):
            return base64.b64decode(inner["blob"]), inner.get("mimeType")
        if isinstance(inner.get("text"), str):
            return inner["text"].encode("utf-8", "surrogatepass"), inner.get("mimeType")
    if isinstance(data.get("content"), list):
        return _block(data["content"])
    return None


class _Input:
    """input(name) is an input's bytes; input.text(name), input.json(name), input.path(name)."""

    def path(self, name):
        inbox = _os.environ.get("MCPX_INBOX")
        if not inbox:
            raise MCPXError("input %r: this run has no inputs" % name, code="no_input", hint="send it as options.inputs")
        if not name or name in (".", "..") or "/" in name or "\0" in name:
            raise MCPXError("input %r: not a name of an input" % name, code="no_input")
        full = _os.path.join(inbox, name)
        if not _os.path.isfile(full):
            there = sorted(_os.listdir(inbox)) if _os.path.isdir(inbox) else []
            raise MCPXError("input %r is not there" % name, code="no_input", hint="there are: %s" % (", ".join(there) or "none"))
        return full

    def __call__(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def text(self, name):
        return self(name).decode("utf-8")

    def json(self, name):
        import json

        return json.loads(self(name))


input = _Input()
