"""What servers see of connections that are reset, and of too few descriptors: `limits.py reset PORT` and `limits.py few|few-forked COUNT
PORT` serve, `limits.py client-reset|client-few|client-full ADDRESS PORT` connects. Each says what it saw."""
import errno
import os
import resource
import select
import socket
import struct
import sys
import threading
import time

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
elif sys.argv[1] in ("few", "few-forked"):
    listener = listen()
    if sys.argv[1] == "few-forked" and os.fork() != 0:
        # The child has everything to open anew.
        sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
    count = int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))
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
elif sys.argv[1] == "client-full":
    connection = connect()
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
    try:
        while True:
            os.dup(0)
    except OSError:
        pass
    said = []
    # A thread that has never waited before.
    waiter = threading.Thread(target=lambda: said.append(connection.recv(100)))
    waiter.start()
    time.sleep(0.2)
    connection.sendall(b"all numbers are used")
    waiter.join()
    print(said, flush=True)
else:
    connections = [connect() for _ in range(MANY)]
    print("answered", sum(connection.recv(1) == b"!" for connection in connections), flush=True)
