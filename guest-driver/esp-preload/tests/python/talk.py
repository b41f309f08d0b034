"""Talks over connections when it is told to: `talk.py serve PORT`, `talk.py connect ADDRESS PORT`.

A client reads words from its input and answers each with a line: `echo N` sends N bytes and gets them back, `new` makes another connection
and uses it once (`new PORT`: to another port), `write N` sends N bytes and leaves what comes back, `flow` does as `echo` does until the
next line, `wait` waits for the end of the first connection. A line says how it went."""
import os
import socket
import sys
import threading


def serve(port):
    listener = socket.create_server(("0.0.0.0", port), backlog=64)

    def answer(connection):
        with connection:
            try:
                while data := connection.recv(1 << 16):
                    connection.sendall(data)
            except OSError:
                pass

    while True:
        connection, _ = listener.accept()
        threading.Thread(target=answer, args=(connection,), daemon=True).start()


def echo(connection, count):
    data = os.urandom(count)
    errors = []

    def send():
        try:
            connection.sendall(data)
        except OSError as error:
            errors.append(error)

    sender = threading.Thread(target=send)
    sender.start()
    got = b""
    while len(got) < count:
        part = connection.recv(1 << 16)
        if not part:
            sender.join()
            # An error is returned once: the call that sends may have been the first.
            raise errors[0] if errors else EOFError("the stream ended early")
        got += part
    sender.join()
    return "same" if got == data else "other bytes"


def flow(connection):
    said = []
    is_over = threading.Event()

    def go_on():
        while not is_over.is_set() and said in ([], ["same"]):
            said[:] = [echo(connection, 1 << 20)]

    thread = threading.Thread(target=go_on)
    thread.start()
    sys.stdin.readline()
    is_over.set()
    thread.join()
    return said[0]


def connect(address):
    first = socket.create_connection(address)
    first.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    print("connected", flush=True)
    for line in sys.stdin:
        word, *rest = line.split()
        try:
            if word == "echo":
                said = echo(first, int(rest[0]))
            elif word == "new":
                with socket.create_connection((address[0], int(rest[0]) if rest else address[1])) as other:
                    said = echo(other, 1000)
            elif word == "write":
                first.sendall(b"w" * int(rest[0]))
                said = "written"
            elif word == "flow":
                said = flow(first)
            elif word == "wait":
                said = "end" if not first.recv(1) else "byte"
        except OSError as error:
            said = error.__class__.__name__ if error.errno is None else os.strerror(error.errno)
        print(said, flush=True)


if sys.argv[1] == "serve":
    serve(int(sys.argv[2]))
else:
    connect((sys.argv[2], int(sys.argv[3])))
