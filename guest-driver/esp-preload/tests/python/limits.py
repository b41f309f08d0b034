"""What servers see of connections that are reset, and of too few descriptors: `limits.py reset|few PORT` serves, `limits.py
client-reset|client-few ADDRESS PORT` connects. A server says what it saw."""
import errno
import resource
import select
import socket
import struct
import sys
import time

FEW = 100
MANY = 40


def listen():
    return socket.create_server(("0.0.0.0", int(sys.argv[-1])), backlog=128)


def connect():
    return socket.create_connection((sys.argv[-2], int(sys.argv[-1])))


if sys.argv[1] == "reset":
    connection, _ = listen().accept()
    watcher = select.epoll()
    watcher.register(connection.fileno(), select.EPOLLIN)
    connection.sendall(b"?")
    events = watcher.poll(10)
    said = [mask & (select.EPOLLERR | select.EPOLLHUP) for _, mask in events]
    try:
        connection.recv(1)
    except OSError as error:
        said.append(errno.errorcode[error.errno])
    print(said == [select.EPOLLERR | select.EPOLLHUP, "ECONNRESET"] or said, flush=True)
elif sys.argv[1] == "client-reset":
    connection = connect()
    connection.recv(1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    time.sleep(0.5)
    connection.close()
elif sys.argv[1] == "few":
    listener = listen()
    resource.setrlimit(resource.RLIMIT_NOFILE, (FEW, FEW))
    served, kept, was_short = 0, [], False
    while served + len(kept) < MANY:
        try:
            kept.append(listener.accept()[0])
        except OSError as error:
            was_short |= error.errno == errno.EMFILE
            # Those that wait are taken as soon as there is room.
            for connection in kept:
                connection.sendall(b"!")
                connection.close()
            served += len(kept)
            kept = []
    for connection in kept:
        connection.sendall(b"!")
        connection.close()
    print("served", MANY, "short" if was_short else "not short", flush=True)
else:
    connections = [connect() for _ in range(MANY)]
    print("answered", sum(connection.recv(1) == b"!" for connection in connections), flush=True)
