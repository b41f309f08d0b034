"""Talks to a server that echoes, at two addresses at the same time: `both.py ADDRESS ADDRESS PORT`. Says `same` if both connections carried
their bytes, while two threads sent at once and then while one waited for both with select and with epoll."""
import os
import select
import socket
import sys
import threading

COUNT = 1_000_000
SMALL = 1000
connections = [socket.create_connection((address, int(sys.argv[3]))) for address in sys.argv[1:3]]


def receive(connection, count):
    got = b""
    while len(got) < count:
        part = connection.recv(1 << 16)
        assert part, "the stream ended early"
        got += part
    return got


def echo(connection):
    data = os.urandom(COUNT)
    sender = threading.Thread(target=connection.sendall, args=(data,))
    sender.start()
    results.append(receive(connection, COUNT) == data)
    sender.join()


def selected():
    return select.select(connections, [], [])[0]


def polled():
    return [connection for fd, _ in watcher.poll() for connection in connections if connection.fileno() == fd]


results = []
threads = [threading.Thread(target=echo, args=(connection,)) for connection in connections]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
watcher = select.epoll()
for connection in connections:
    watcher.register(connection.fileno(), select.EPOLLIN)
for ready in (selected, polled):
    for turn in range(20):
        data = [os.urandom(SMALL) for _ in connections]
        got = [b"", b""]
        for connection, bytes_ in zip(connections, data):
            connection.sendall(bytes_)
        while min(map(len, got)) < SMALL:
            for connection in ready():
                got[connections.index(connection)] += connection.recv(SMALL)
        results.append(got == data)
print("same" if len(results) == 42 and all(results) else results, flush=True)
