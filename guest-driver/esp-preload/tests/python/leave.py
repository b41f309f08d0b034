"""Leaves bytes behind: `leave.py send ADDRESS PORT COUNT` sends so many and ends at once; `leave.py receive PORT SECONDS` takes one
connection, reads nothing from it for so long, then everything. Both say how many bytes there were, and their digest."""
import hashlib
import socket
import sys
import time


def say(data):
    print(len(data), hashlib.sha256(data).hexdigest(), flush=True)


if sys.argv[1] == "send":
    data = b"".join(number.to_bytes(4, "big") for number in range(int(sys.argv[4]) // 4))
    connection = socket.create_connection((sys.argv[2], int(sys.argv[3])))
    connection.sendall(data)
    say(data)
else:
    connection, _ = socket.create_server(("0.0.0.0", int(sys.argv[2]))).accept()
    time.sleep(float(sys.argv[3]))
    data = b""
    while part := connection.recv(1 << 16):
        data += part
    say(data)
