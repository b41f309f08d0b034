// Checks of the blocking collective operations, from every root and over several sizes.
#include "conformance.h"

#include <stdlib.h>
#include <string.h>

static const int COUNTS[] = {0, 1, 3, 100, 5000, 100000};

// The value that `source` contributes at place `i` for the destination `target`.
static int value(int source, int target, int i) { return source * 1000003 + target * 1009 + i * 7; }

static int *new_ints(int count) { return (int *)(void *)new_bytes((size_t)count * sizeof(int)); }

static void free_ints(int *ints, int count) { free_bytes((unsigned char *)ints, (size_t)count * sizeof(int)); }

static void fill_ints(int *ints, int count, int source, int target) {
    for (int i = 0; i < count; i++) {
        ints[i] = value(source, target, i);
    }
}

static void expect_ints(const int *ints, int count, int source, int target, const char *what) {
    for (int i = 0; i < count; i++) {
        if (ints[i] != value(source, target, i)) {
            fail("%s, %d elements: element %d from rank %d is %d, expected %d", what, count, i, source, ints[i],
                 value(source, target, i));
            return;
        }
    }
}

// The sum of the values of ranks 0 to `last`.
static int sum_at(int last, int i) {
    int sum = 0;
    for (int source = 0; source <= last; source++) {
        sum += value(source, 0, i);
    }
    return sum;
}

static void expect_sums(const int *ints, int count, int last, int first_place, const char *what) {
    for (int i = 0; i < count; i++) {
        if (ints[i] != sum_at(last, first_place + i)) {
            fail("%s, %d elements: element %d is %d, expected %d", what, count, i, ints[i], sum_at(last, first_place + i));
            return;
        }
    }
}

// Each rank in turn enters the barrier last, after a message from every other rank that is about to enter. A rank that leaves
// the barrier says so with a message, so one that leaves too early is seen by the last rank.
void check_barrier(void) {
    for (int last = 0; last < ranks; last++) {
        step("barrier that rank %d enters last", last);
        if (rank == last) {
            for (int peer = 0; peer < ranks; peer++) {
                if (peer != last) {
                    await_peer(peer, 1);
                }
            }
            int early = 0;
            for (int i = 0; i < 100; i++) {
                MPI_Iprobe(MPI_ANY_SOURCE, 2, comm, &early, MPI_STATUS_IGNORE);
                EXPECT(!early, "a rank left the barrier before rank %d had entered it", last);
            }
            MPI_Barrier(comm);
            for (int peer = 0; peer < ranks; peer++) {
                if (peer != last) {
                    await_peer(peer, 2);
                }
            }
        } else {
            signal_peer(last, 1);
            MPI_Barrier(comm);
            signal_peer(last, 2);
        }
    }
    step("many barriers");
    for (int i = 0; i < 50; i++) {
        MPI_Barrier(comm);
    }
}

void check_bcast(void) {
    for (int c = 0; c < COUNT_OF(COUNTS); c++) {
        int *data = new_ints(COUNTS[c]);
        for (int root = 0; root < ranks; root++) {
            step("%d elements from rank %d", COUNTS[c], root);
            fill_ints(data, COUNTS[c], rank, root);
            MPI_Bcast(data, COUNTS[c], MPI_INT, root, comm);
            expect_ints(data, COUNTS[c], root, root, "MPI_Bcast");
        }
        free_ints(data, COUNTS[c]);
    }
}

void check_reduce(void) {
    for (int c = 0; c < COUNT_OF(COUNTS); c++) {
        int count = COUNTS[c], *mine = new_ints(count), *result = new_ints(count);
        fill_ints(mine, count, rank, 0);
        for (int root = 0; root < ranks; root++) {
            step("%d elements to rank %d", count, root);
            memset(result, 0, (size_t)count * sizeof(int));
            MPI_Reduce(mine, result, count, MPI_INT, MPI_SUM, root, comm);
            if (rank == root) {
                expect_sums(result, count, ranks - 1, 0, "MPI_Reduce, sum");
            }
            memcpy(result, mine, (size_t)count * sizeof(int));
            MPI_Reduce(rank == root ? MPI_IN_PLACE : mine, result, count, MPI_INT, MPI_MAX, root, comm);
            expect_ints(result, count, rank == root ? ranks - 1 : rank, 0, "MPI_Reduce, maximum in place");
        }
        free_ints(mine, count);
        free_ints(result, count);
    }
}

void check_allreduce(void) {
    for (int c = 0; c < COUNT_OF(COUNTS); c++) {
        int count = COUNTS[c], *mine = new_ints(count), *result = new_ints(count);
        step("%d elements", count);
        fill_ints(mine, count, rank, 0);
        MPI_Allreduce(mine, result, count, MPI_INT, MPI_SUM, comm);
        expect_sums(result, count, ranks - 1, 0, "MPI_Allreduce, sum");
        memcpy(result, mine, (size_t)count * sizeof(int));
        MPI_Allreduce(MPI_IN_PLACE, result, count, MPI_INT, MPI_SUM, comm);
        expect_sums(result, count, ranks - 1, 0, "MPI_Allreduce, sum in place");
        MPI_Allreduce(mine, result, count, MPI_INT, MPI_MIN, comm);
        expect_ints(result, count, 0, 0, "MPI_Allreduce, minimum");
        free_ints(mine, count);
        free_ints(result, count);
    }
    double mine = rank + 0.5, sum = 0.0;
    MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, comm);
    EXPECT(sum == ranks * (ranks - 1) / 2.0 + ranks * 0.5, "MPI_Allreduce of doubles: %g", sum);
}

// The composition of the functions x -> a x + b modulo a prime: associative, but not commutative.
static void compose(void *in, void *inout, int *count, MPI_Datatype *type) {
    (void)type;
    const long long *first = in;
    long long *second = inout;
    for (int i = 0; i < *count; i++) {
        long long a = first[2 * i] * second[2 * i] % 1000003;
        long long b = (first[2 * i + 1] * second[2 * i] + second[2 * i + 1]) % 1000003;
        second[2 * i] = a;
        second[2 * i + 1] = b;
    }
}

void check_reduce_not_commutative(void) {
    enum { COUNT = 500 };
    static long long mine[2 * COUNT], expected[2 * COUNT], result[2 * COUNT];
    MPI_Datatype pair;
    MPI_Op operation;
    MPI_Type_contiguous(2, MPI_LONG_LONG, &pair);
    MPI_Type_commit(&pair);
    MPI_Op_create(compose, 0, &operation);
    for (int source = ranks - 1; source >= 0; source--) {
        long long previous[2 * COUNT];
        memcpy(previous, expected, sizeof previous);
        for (int i = 0; i < 2 * COUNT; i++) {
            expected[i] = (source * 31 + i * 17 + 2) % 1000;
        }
        if (source == rank) {
            memcpy(mine, expected, sizeof mine);
        }
        if (source < ranks - 1) {
            int count = COUNT;
            compose(expected, previous, &count, &pair);
            memcpy(expected, previous, sizeof expected);
        }
    }
    for (int root = 0; root < ranks; root++) {
        step("MPI_Reduce to rank %d", root);
        memset(result, 0, sizeof result);
        MPI_Reduce(mine, result, COUNT, pair, operation, root, comm);
        EXPECT(rank != root || memcmp(result, expected, sizeof result) == 0, "MPI_Reduce: wrong result at rank %d", root);
    }
    step("MPI_Allreduce");
    MPI_Allreduce(mine, result, COUNT, pair, operation, comm);
    EXPECT(memcmp(result, expected, sizeof result) == 0, "MPI_Allreduce: wrong result");
    MPI_Op_free(&operation);
    MPI_Type_free(&pair);
}

void check_reduce_scatter(void) {
    for (int c = 0; c < COUNT_OF(COUNTS); c++) {
        int count = COUNTS[c] / 4, total = count * ranks;
        int *mine = new_ints(total + ranks * ranks), *result = new_ints(count + ranks);
        fill_ints(mine, total + ranks * ranks, rank, 0);
        step("MPI_Reduce_scatter_block of %d elements", count);
        MPI_Reduce_scatter_block(mine, result, count, MPI_INT, MPI_SUM, comm);
        expect_sums(result, count, ranks - 1, rank * count, "MPI_Reduce_scatter_block");
        // Rank r gets `count` + r elements.
        int *counts = new_ints(ranks), first = 0;
        for (int r = 0; r < ranks; r++) {
            counts[r] = count + r;
            first += r < rank ? counts[r] : 0;
        }
        step("MPI_Reduce_scatter of %d elements", count);
        MPI_Reduce_scatter(mine, result, counts, MPI_INT, MPI_SUM, comm);
        expect_sums(result, counts[rank], ranks - 1, first, "MPI_Reduce_scatter");
        free_ints(counts, ranks);
        free_ints(mine, total + ranks * ranks);
        free_ints(result, count + ranks);
    }
}

void check_scan(void) {
    for (int c = 0; c < COUNT_OF(COUNTS); c++) {
        int count = COUNTS[c], *mine = new_ints(count), *result = new_ints(count);
        fill_ints(mine, count, rank, 0);
        step("MPI_Scan of %d elements", count);
        MPI_Scan(mine, result, count, MPI_INT, MPI_SUM, comm);
        expect_sums(result, count, rank, 0, "MPI_Scan");
        step("MPI_Exscan of %d elements", count);
        MPI_Exscan(mine, result, count, MPI_INT, MPI_SUM, comm);
        if (rank > 0) {
            expect_sums(result, count, rank - 1, 0, "MPI_Exscan");
        }
        free_ints(mine, count);
        free_ints(result, count);
    }
}

// The layout of operations with a count per rank: rank r contributes or gets `count` + r elements, and one element is left
// free behind each block.
typedef struct layout {
    int total;
    int counts[256];
    int places[256];
} layout;

static layout *new_layout(int count) {
    layout *layout = calloc(1, sizeof *layout);
    if (ranks > COUNT_OF(layout->counts)) {
        skip("written for at most %d ranks", COUNT_OF(layout->counts));
        return NULL;
    }
    for (int r = 0; r < ranks; r++) {
        layout->counts[r] = count + r;
        layout->places[r] = layout->total;
        layout->total += layout->counts[r] + 1;
    }
    return layout;
}

static void expect_blocks(const int *all, const layout *layout, int target, const char *what) {
    for (int source = 0; source < ranks; source++) {
        expect_ints(all + layout->places[source], layout->counts[source], source, target, what);
        int behind = all[layout->places[source] + layout->counts[source]];
        EXPECT(behind == 0, "%s: the gap behind block %d was overwritten", what, source);
    }
}

void check_gather(void) {
    for (int c = 0; c < COUNT_OF(COUNTS); c++) {
        int count = COUNTS[c], *mine = new_ints(count + ranks), *all = new_ints(count * ranks);
        layout *layout = new_layout(count);
        for (int root = 0; root < ranks && layout != NULL; root++) {
            step("MPI_Gather of %d elements at rank %d", count, root);
            fill_ints(mine, count + ranks, rank, root);
            MPI_Gather(mine, count, MPI_INT, all, count, MPI_INT, root, comm);
            for (int source = 0; source < ranks && rank == root; source++) {
                expect_ints(all + source * count, count, source, root, "MPI_Gather");
            }
            step("MPI_Gatherv of %d elements at rank %d", count, root);
            int *blocks = new_ints(layout->total);
            MPI_Gatherv(mine, count + rank, MPI_INT, blocks, layout->counts, layout->places, MPI_INT, root, comm);
            if (rank == root) {
                expect_blocks(blocks, layout, root, "MPI_Gatherv");
            }
            free_ints(blocks, layout->total);
        }
        free(layout);
        free_ints(mine, count + ranks);
        free_ints(all, count * ranks);
    }
}

void check_scatter(void) {
    for (int c = 0; c < COUNT_OF(COUNTS); c++) {
        int count = COUNTS[c], *mine = new_ints(count + ranks), *all = new_ints(count * ranks);
        layout *layout = new_layout(count);
        int *blocks = new_ints(layout == NULL ? 0 : layout->total);
        for (int root = 0; root < ranks && layout != NULL; root++) {
            for (int target = 0; target < ranks; target++) {
                fill_ints(all + target * count, count, root, target);
                fill_ints(blocks + layout->places[target], layout->counts[target], root, target);
            }
            step("MPI_Scatter of %d elements from rank %d", count, root);
            MPI_Scatter(all, count, MPI_INT, mine, count, MPI_INT, root, comm);
            expect_ints(mine, count, root, rank, "MPI_Scatter");
            memset(mine, 0, (size_t)count * sizeof(int));
            step("MPI_Scatterv of %d elements from rank %d", count, root);
            MPI_Scatterv(blocks, layout->counts, layout->places, MPI_INT, mine, count + rank, MPI_INT, root, comm);
            expect_ints(mine, count + rank, root, rank, "MPI_Scatterv");
        }
        free_ints(blocks, layout == NULL ? 0 : layout->total);
        free(layout);
        free_ints(mine, count + ranks);
        free_ints(all, count * ranks);
    }
}

void check_allgather(void) {
    for (int c = 0; c < COUNT_OF(COUNTS); c++) {
        int count = COUNTS[c], *mine = new_ints(count + ranks), *all = new_ints(count * ranks);
        layout *layout = new_layout(count);
        if (layout != NULL) {
            step("MPI_Allgather of %d elements", count);
            fill_ints(mine, count + ranks, rank, 0);
            MPI_Allgather(mine, count, MPI_INT, all, count, MPI_INT, comm);
            for (int source = 0; source < ranks; source++) {
                expect_ints(all + source * count, count, source, 0, "MPI_Allgather");
            }
            step("MPI_Allgatherv of %d elements", count);
            int *blocks = new_ints(layout->total);
            MPI_Allgatherv(mine, count + rank, MPI_INT, blocks, layout->counts, layout->places, MPI_INT, comm);
            expect_blocks(blocks, layout, 0, "MPI_Allgatherv");
            free_ints(blocks, layout->total);
        }
        free(layout);
        free_ints(mine, count + ranks);
        free_ints(all, count * ranks);
    }
}

// Rank r sends `count` + r elements to every rank.
static void alltoallv(int count) {
    layout *in = new_layout(count);
    if (in == NULL) {
        return;
    }
    int out_counts[256], out_places[256], total = (count + rank) * ranks;
    int *outs = new_ints(total), *ins = new_ints(in->total);
    for (int target = 0; target < ranks; target++) {
        out_counts[target] = count + rank;
        out_places[target] = target * (count + rank);
        fill_ints(outs + out_places[target], count + rank, rank, target);
    }
    step("MPI_Alltoallv of %d elements", count);
    MPI_Alltoallv(outs, out_counts, out_places, MPI_INT, ins, in->counts, in->places, MPI_INT, comm);
    expect_blocks(ins, in, rank, "MPI_Alltoallv");
    free_ints(outs, total);
    free_ints(ins, in->total);
    free(in);
}

void check_alltoall(void) {
    for (int c = 0; c < COUNT_OF(COUNTS); c++) {
        int count = COUNTS[c], total = count * ranks, *outs = new_ints(total), *ins = new_ints(total);
        for (int target = 0; target < ranks; target++) {
            fill_ints(outs + target * count, count, rank, target);
        }
        step("MPI_Alltoall of %d elements", count);
        MPI_Alltoall(outs, count, MPI_INT, ins, count, MPI_INT, comm);
        for (int source = 0; source < ranks; source++) {
            expect_ints(ins + source * count, count, source, rank, "MPI_Alltoall");
        }
        free_ints(outs, total);
        free_ints(ins, total);
        alltoallv(count);
    }
}

// Every second peer gets doubles, the others ints.
void check_alltoallw(void) {
    enum { COUNT = 300, BLOCK = COUNT * 8 };
    size_t total = (size_t)ranks * BLOCK;
    unsigned char *outs = new_bytes(total), *ins = new_bytes(total);
    int *counts = calloc((size_t)ranks, sizeof *counts), *places = calloc((size_t)ranks, sizeof *places);
    MPI_Datatype *types = calloc((size_t)ranks, sizeof *types);
    for (int peer = 0; peer < ranks; peer++) {
        bool doubles = (peer + rank) % 2 == 0;
        counts[peer] = COUNT;
        places[peer] = peer * BLOCK;
        types[peer] = doubles ? MPI_DOUBLE : MPI_INT;
        fill(outs + places[peer], doubles ? BLOCK : BLOCK / 2, seed_of(rank, peer));
    }
    MPI_Alltoallw(outs, counts, places, types, ins, counts, places, types, comm);
    for (int peer = 0; peer < ranks; peer++) {
        size_t length = (peer + rank) % 2 == 0 ? BLOCK : BLOCK / 2;
        expect_filled(ins + places[peer], length, seed_of(peer, rank), "MPI_Alltoallw");
    }
    free(counts);
    free(places);
    free(types);
    free_bytes(outs, total);
    free_bytes(ins, total);
}
