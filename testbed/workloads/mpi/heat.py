"""The heat equation on a square plate with a hot edge, as in heat.c.     mpirun -n 4 python3 heat.py [POINTS [STEPS]]"""
import sys
import numpy as np
from mpi4py import MPI

points, steps = int(sys.argv[1]) if len(sys.argv) > 1 else 128, int(sys.argv[2]) if len(sys.argv) > 2 else 2000
world = MPI.COMM_WORLD
if points % world.size != 0:
    sys.exit("heat: the number of points must be a multiple of the number of ranks")
rank, ranks, lines = world.rank, world.size, points // world.size
above, below = rank - 1 if rank > 0 else MPI.PROC_NULL, rank + 1 if rank < ranks - 1 else MPI.PROC_NULL
plate = np.zeros((lines + 2, points))  # The lines of this rank, between one line of each neighbour.
plate[1] = 1.0 if rank == 0 else 0.0  # The upper edge of the plate is hot; the other three are cold.
first, end = 2 if rank == 0 else 1, lines if rank == ranks - 1 else lines + 1
for step in range(steps):
    world.Sendrecv(plate[1], above, recvbuf=plate[-1], source=below)
    world.Sendrecv(plate[-2], below, recvbuf=plate[0], source=above)
    around = plate[first - 1 : end - 1, 1:-1] + plate[first + 1 : end + 1, 1:-1] + plate[first:end, :-2] + plate[first:end, 2:]
    plate[first:end, 1:-1] += 0.24 * (around - 4 * plate[first:end, 1:-1])
whole = world.gather(plate[1:-1])
if rank == 0:
    picture = f"P2\n# {steps} steps on {ranks} ranks\n{points} {points} 65535"
    np.savetxt("heat.pgm", np.vstack(whole) * 65535, fmt="%d", header=picture, comments="")
    print(f"{steps} steps on {ranks} ranks: mean temperature {np.mean(whole):.6f}, picture in heat.pgm")
