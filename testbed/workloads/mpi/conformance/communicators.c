// Checks of communicators: made by splitting, duplicating, from groups, between groups, and with a topology.
#include "conformance.h"

#include <stdlib.h>
#include <string.h>

// A ring and a sum inside `other`, with contents that depend on `mark`, so that a message of another communicator is
// noticed.
static void ring_and_sum(MPI_Comm other, int mark, const char *what) {
    int me, members, sum = 0;
    MPI_Comm_rank(other, &me);
    MPI_Comm_size(other, &members);
    static const size_t LENGTHS[] = {0, 100, 50000};
    for (int i = 0; i < COUNT_OF(LENGTHS); i++) {
        size_t length = LENGTHS[i];
        step("%s: ring of %zu bytes", what, length);
        int to = (me + 1) % members, from = (me + members - 1) % members;
        unsigned char *out = new_bytes(length), *in = new_bytes(length);
        fill(out, length, seed_of(me, mark));
        MPI_Status status;
        MPI_Sendrecv(out, (int)length, MPI_BYTE, to, 1, in, (int)length, MPI_BYTE, from, 1, other, &status);
        expect_status(&status, from, 1, length, what);
        expect_filled(in, length, seed_of(from, mark), what);
        free_bytes(out, length);
        free_bytes(in, length);
    }
    step("%s: sum", what);
    int mine = me + mark;
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, other);
    EXPECT(sum == members * (members - 1) / 2 + members * mark, "%s: the sum is %d", what, sum);
}

void check_comm_split(void) {
    MPI_Comm part;
    // The key turns the order round.
    MPI_Comm_split(comm, rank % 2, ranks - rank, &part);
    int me, members, below = 0;
    MPI_Comm_rank(part, &me);
    MPI_Comm_size(part, &members);
    for (int r = rank + 1; r < ranks; r++) {
        below += r % 2 == rank % 2;
    }
    EXPECT(me == below, "rank %d in the part, expected %d", me, below);
    EXPECT(members == (ranks + 1 - rank % 2) / 2, "%d ranks in the part", members);
    ring_and_sum(part, rank % 2, "MPI_Comm_split");
    MPI_Comm_free(&part);
    MPI_Comm_split(comm, rank == 0 ? MPI_UNDEFINED : 1, 0, &part);
    EXPECT((part == MPI_COMM_NULL) == (rank == 0), "MPI_Comm_split with MPI_UNDEFINED");
    if (part != MPI_COMM_NULL) {
        ring_and_sum(part, 5, "MPI_Comm_split with MPI_UNDEFINED");
        MPI_Comm_free(&part);
    }
}

// Messages of one tag are outstanding on several duplicates; the receives are posted in another order than the sends.
void check_comm_dup(void) {
    enum { COPIES = 12, LENGTH = 700 };
    MPI_Comm copies[COPIES];
    static unsigned char outs[COPIES][LENGTH], ins[COPIES][LENGTH];
    MPI_Request requests[COPIES];
    for (int i = 0; i < COPIES; i++) {
        step("MPI_Comm_dup %d", i);
        MPI_Comm_dup(i == 0 ? comm : copies[i - 1], &copies[i]);
        fill(outs[i], LENGTH, seed_of(rank, i));
    }
    for (int i = 0; i < COPIES; i++) {
        MPI_Isend(outs[i], LENGTH, MPI_BYTE, right(), 1, copies[i], &requests[i]);
    }
    for (int i = COPIES - 1; i >= 0; i--) {
        step("receive on duplicate %d", i);
        MPI_Recv(ins[i], LENGTH, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, copies[i], MPI_STATUS_IGNORE);
        expect_filled(ins[i], LENGTH, seed_of(left(), i), "message on a duplicate");
    }
    wait_all(COPIES, requests);
    for (int i = 0; i < COPIES; i++) {
        MPI_Comm_free(&copies[i]);
    }
}

void check_comm_group(void) {
    MPI_Group all, reversed, first;
    MPI_Comm part;
    int *members = calloc((size_t)ranks, sizeof *members);
    for (int i = 0; i < ranks; i++) {
        members[i] = ranks - 1 - i;
    }
    MPI_Comm_group(comm, &all);
    MPI_Group_incl(all, ranks, members, &reversed);
    step("MPI_Comm_create");
    MPI_Comm_create(comm, reversed, &part);
    int me = -1;
    MPI_Comm_rank(part, &me);
    EXPECT(me == ranks - 1 - rank, "rank %d in the reversed communicator", me);
    ring_and_sum(part, 3, "MPI_Comm_create");
    MPI_Comm_free(&part);
    // Only the members call MPI_Comm_create_group.
    int half = (ranks + 1) / 2;
    MPI_Group_incl(reversed, half, members + ranks - half, &first);
    int in_first = MPI_UNDEFINED;
    MPI_Group_rank(first, &in_first);
    if (in_first != MPI_UNDEFINED) {
        step("MPI_Comm_create_group");
        MPI_Comm_create_group(comm, first, 17, &part);
        ring_and_sum(part, 4, "MPI_Comm_create_group");
        MPI_Comm_free(&part);
    }
    MPI_Group_free(&all);
    MPI_Group_free(&reversed);
    MPI_Group_free(&first);
    free(members);
}

// Even ranks on one side, odd ranks on the other.
void check_intercommunicator(void) {
    MPI_Comm side, between, merged;
    int is_odd = rank % 2;
    MPI_Comm_split(comm, is_odd, rank, &side);
    step("MPI_Intercomm_create");
    MPI_Intercomm_create(side, 0, comm, 1 - is_odd, 33, &between);
    int me, here, there;
    MPI_Comm_rank(between, &me);
    MPI_Comm_size(between, &here);
    MPI_Comm_remote_size(between, &there);
    EXPECT(here + there == ranks, "%d local and %d remote ranks", here, there);
    if (me < here && me < there) {
        static unsigned char out[5000], in[5000];
        fill(out, sizeof out, seed_of(rank, 1));
        MPI_Status status;
        step("messages between the sides");
        MPI_Sendrecv(out, sizeof out, MPI_BYTE, me, 2, in, sizeof in, MPI_BYTE, me, 2, between, &status);
        expect_status(&status, me, 2, sizeof in, "message between the sides");
        expect_filled(in, sizeof in, seed_of(2 * me + 1 - is_odd, 1), "message between the sides");
    }
    int mine = rank, sum = 0, expected = 0;
    for (int r = 1 - is_odd; r < ranks; r += 2) {
        expected += r;
    }
    step("MPI_Allreduce between the sides");
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, between);
    EXPECT(sum == expected, "MPI_Allreduce between the sides: %d, expected %d", sum, expected);
    int number = rank == 0 ? 4711 : 0;
    step("MPI_Bcast between the sides");
    MPI_Bcast(&number, 1, MPI_INT, is_odd ? 0 : rank == 0 ? MPI_ROOT : MPI_PROC_NULL, between);
    EXPECT(!is_odd || number == 4711, "MPI_Bcast between the sides: %d", number);
    step("MPI_Intercomm_merge");
    MPI_Intercomm_merge(between, is_odd, &merged);
    ring_and_sum(merged, 6, "MPI_Intercomm_merge");
    MPI_Comm_free(&merged);
    MPI_Comm_free(&between);
    MPI_Comm_free(&side);
}

void check_cartesian(void) {
    int sizes[2] = {0, 0}, periodic[2] = {1, 0};
    MPI_Comm grid;
    MPI_Dims_create(ranks, 2, sizes);
    MPI_Cart_create(comm, 2, sizes, periodic, 1, &grid);
    int me;
    MPI_Comm_rank(grid, &me);
    for (int dimension = 0; dimension < 2; dimension++) {
        int from, to;
        MPI_Cart_shift(grid, dimension, 1, &from, &to);
        unsigned char out[2000], in[2000] = {0};
        fill(out, sizeof out, seed_of(me, dimension));
        step("shift in dimension %d", dimension);
        MPI_Sendrecv(out, sizeof out, MPI_BYTE, to, 1, in, sizeof in, MPI_BYTE, from, 1, grid, MPI_STATUS_IGNORE);
        if (from != MPI_PROC_NULL) {
            expect_filled(in, sizeof in, seed_of(from, dimension), "shift in a grid");
        }
    }
    int neighbours[4] = {-1, -1, -1, -1}, expected[4];
    step("MPI_Neighbor_allgather");
    MPI_Neighbor_allgather(&me, 1, MPI_INT, neighbours, 1, MPI_INT, grid);
    MPI_Cart_shift(grid, 0, 1, &expected[0], &expected[1]);
    MPI_Cart_shift(grid, 1, 1, &expected[2], &expected[3]);
    for (int i = 0; i < 4; i++) {
        int wanted = expected[i] == MPI_PROC_NULL ? -1 : expected[i];
        EXPECT(neighbours[i] == wanted, "MPI_Neighbor_allgather: neighbour %d is %d, expected %d", i, neighbours[i], wanted);
    }
    MPI_Comm_free(&grid);
}
