// Integer sort: the shape of the NAS kernel IS, written anew. Every rank makes its part of a fixed sequence of keys; the
// keys are sorted into buckets, the buckets are spread over the ranks so that each gets about as many keys, and
// MPI_Alltoallv moves them. The result is verified completely; the exit status is 1 if it is wrong.
//
//     mpirun -np 4 is [S|W|A]
#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "usage.h"

static const char USAGE[] = "mpirun -np N is [S|W|A]";

enum { ITERATIONS = 10, PROBES = 5 };

typedef struct class {
    char name;
    int log_keys;
    int log_largest_key;
    int log_buckets;
} class;

static const class CLASSES[] = {{'S', 16, 11, 9}, {'W', 20, 16, 10}, {'A', 23, 19, 10}};

typedef struct sort {
    class class;
    int rank;
    int ranks;
    // The keys that this rank made.
    int64_t first;
    int count;
    int *keys;
    // The keys that this rank received, sorted; all are between these two bounds.
    int *sorted;
    int sorted_count;
    int lowest_key;
    int end_key;
} sort;

static void *allocate(size_t count, size_t size) {
    void *memory = calloc(count + 1, size);
    if (memory == NULL) {
        fprintf(stderr, "is: no memory for %zu elements\n", count);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return memory;
}

static uint64_t mix(uint64_t x) {
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

// Key number `index`, whatever the number of ranks. As in the original it is the mean of four random numbers, so the keys
// are not spread evenly and the buckets have to be balanced.
static int key_at(const class *class, int64_t index) {
    uint64_t sum = 0;
    for (uint64_t i = 0; i < 4; i++) {
        sum += mix((uint64_t)index * 4 + i) >> (64 - class->log_largest_key);
    }
    return (int)(sum / 4);
}

static void make_keys(sort *sort) {
    int64_t total = (int64_t)1 << sort->class.log_keys;
    sort->first = total * sort->rank / sort->ranks;
    sort->count = (int)(total * (sort->rank + 1) / sort->ranks - sort->first);
    sort->keys = allocate((size_t)sort->count, sizeof(int));
    for (int i = 0; i < sort->count; i++) {
        sort->keys[i] = key_at(&sort->class, sort->first + i);
    }
}

// Gives each rank consecutive buckets until it has its share of the keys; `first_bucket[r]` is the first one of rank r.
static void share_buckets(const sort *sort, const int *totals, int *first_bucket) {
    int buckets = 1 << sort->class.log_buckets, rank = 1;
    int64_t total = (int64_t)1 << sort->class.log_keys, sum = 0;
    first_bucket[0] = 0;
    for (int bucket = 0; bucket < buckets; bucket++) {
        sum += totals[bucket];
        while (rank < sort->ranks && sum >= total * rank / sort->ranks) {
            first_bucket[rank++] = bucket + 1;
        }
    }
    for (; rank <= sort->ranks; rank++) {
        first_bucket[rank] = buckets;
    }
    first_bucket[sort->ranks] = buckets;
}

static int places(const int *counts, int *first, int ranks) {
    int sum = 0;
    for (int r = 0; r < ranks; r++) {
        first[r] = sum;
        sum += counts[r];
    }
    return sum;
}

// Sorts `in` into `out` by counting how often each key occurs.
static void count_keys(sort *sort, const int *in) {
    int span = sort->end_key - sort->lowest_key;
    int *counts = allocate((size_t)span, sizeof(int));
    for (int i = 0; i < sort->sorted_count; i++) {
        int place = in[i] - sort->lowest_key;
        if (place < 0 || place >= span) {
            fprintf(stderr, "is: rank %d received key %d, which belongs to another rank\n", sort->rank, in[i]);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
        counts[place]++;
    }
    int written = 0;
    for (int place = 0; place < span; place++) {
        for (int i = 0; i < counts[place]; i++) {
            sort->sorted[written++] = place + sort->lowest_key;
        }
    }
    free(counts);
}

static void sort_once(sort *sort) {
    int shift = sort->class.log_largest_key - sort->class.log_buckets, buckets = 1 << sort->class.log_buckets;
    int *mine = allocate((size_t)buckets, sizeof(int)), *totals = allocate((size_t)buckets, sizeof(int));
    int *first_bucket = allocate((size_t)sort->ranks + 1, sizeof(int)), *next = allocate((size_t)buckets, sizeof(int));
    int *counts = allocate(4 * (size_t)sort->ranks, sizeof(int));
    int *out_counts = counts, *in_counts = counts + sort->ranks, *out_first = in_counts + sort->ranks;
    int *in_first = out_first + sort->ranks, *outs = allocate((size_t)sort->count, sizeof(int));

    for (int i = 0; i < sort->count; i++) {
        mine[sort->keys[i] >> shift]++;
    }
    MPI_Allreduce(mine, totals, buckets, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    share_buckets(sort, totals, first_bucket);
    places(mine, next, buckets);
    for (int i = 0; i < sort->count; i++) {
        outs[next[sort->keys[i] >> shift]++] = sort->keys[i];
    }
    for (int r = 0; r < sort->ranks; r++) {
        for (int bucket = first_bucket[r]; bucket < first_bucket[r + 1]; bucket++) {
            out_counts[r] += mine[bucket];
        }
    }
    MPI_Alltoall(out_counts, 1, MPI_INT, in_counts, 1, MPI_INT, MPI_COMM_WORLD);
    places(out_counts, out_first, sort->ranks);
    sort->sorted_count = places(in_counts, in_first, sort->ranks);
    int *ins = allocate((size_t)sort->sorted_count, sizeof(int));
    MPI_Alltoallv(outs, out_counts, out_first, MPI_INT, ins, in_counts, in_first, MPI_INT, MPI_COMM_WORLD);

    sort->lowest_key = first_bucket[sort->rank] << shift;
    sort->end_key = first_bucket[sort->rank + 1] << shift;
    free(sort->sorted);
    sort->sorted = allocate((size_t)sort->sorted_count, sizeof(int));
    count_keys(sort, ins);
    free(mine);
    free(totals);
    free(first_bucket);
    free(next);
    free(counts);
    free(outs);
    free(ins);
}

// Whether the keys of all ranks, one rank after the other, are in ascending order.
static bool is_ascending(const sort *sort) {
    bool ascending = true;
    for (int i = 1; i < sort->sorted_count; i++) {
        ascending = ascending && sort->sorted[i - 1] <= sort->sorted[i];
    }
    // The greatest key so far of the ranks before this one.
    int last = sort->sorted_count > 0 ? sort->sorted[sort->sorted_count - 1] : -1, before = -1;
    MPI_Exscan(&last, &before, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    return ascending && (sort->rank == 0 || sort->sorted_count == 0 || before <= sort->sorted[0]);
}

// Whether the keys are those that were made: their number and two sums of hashes agree.
static bool is_complete(const sort *sort) {
    uint64_t made[3] = {0, 0, 0}, found[3] = {0, 0, 0}, mine[3] = {0, 0, 0};
    mine[0] = (uint64_t)sort->count;
    for (int i = 0; i < sort->count; i++) {
        mine[1] += mix((uint64_t)key_at(&sort->class, sort->first + i));
        mine[2] += mix((uint64_t)key_at(&sort->class, sort->first + i) + (1u << 30));
    }
    MPI_Allreduce(mine, made, 3, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    mine[0] = (uint64_t)sort->sorted_count;
    mine[1] = mine[2] = 0;
    for (int i = 0; i < sort->sorted_count; i++) {
        mine[1] += mix((uint64_t)sort->sorted[i]);
        mine[2] += mix((uint64_t)sort->sorted[i] + (1u << 30));
    }
    MPI_Allreduce(mine, found, 3, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    return memcmp(made, found, sizeof made) == 0;
}

// Whether some keys are at the place where a serial run puts them: behind all smaller keys of the sequence.
static bool has_serial_places(const sort *sort) {
    bool right = true;
    int64_t total = (int64_t)1 << sort->class.log_keys, mine = sort->sorted_count, before = 0;
    MPI_Exscan(&mine, &before, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    before = sort->rank == 0 ? 0 : before;
    for (int probe = 0; probe < PROBES; probe++) {
        int key = key_at(&sort->class, (int64_t)(mix((uint64_t)probe) % (uint64_t)total));
        int64_t smaller = 0, place = 0;
        for (int64_t i = 0; i < total && sort->rank == 0; i++) {
            smaller += key_at(&sort->class, i) < key;
        }
        MPI_Bcast(&smaller, 1, MPI_INT64_T, 0, MPI_COMM_WORLD);
        if (key >= sort->lowest_key && key < sort->end_key) {
            for (place = 0; place < sort->sorted_count && sort->sorted[place] < key; place++) {
            }
            right = right && place < sort->sorted_count && sort->sorted[place] == key && before + place == smaller;
        }
    }
    return right;
}

static class class_of(int count, char **arguments) {
    answer_help(count, arguments, USAGE);
    char name = count > 1 ? arguments[1][0] : 'S';
    for (size_t i = 0; i < sizeof CLASSES / sizeof CLASSES[0]; i++) {
        if (CLASSES[i].name == name && (count < 2 || arguments[1][1] == 0)) {
            return CLASSES[i];
        }
    }
    fprintf(stderr, "usage: %s\n", USAGE);
    exit(2);
}

int main(int count, char **arguments) {
    sort sort = {.class = class_of(count, arguments)};
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &sort.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &sort.ranks);
    int64_t total = (int64_t)1 << sort.class.log_keys;
    if (sort.rank == 0) {
        printf(" Integer sort\n Size:  %lld  (class %c)\n Iterations:   %d\n Number of processes:     %d\n",
               (long long)total, sort.class.name, ITERATIONS, sort.ranks);
    }
    make_keys(&sort);
    sort_once(&sort);
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (int i = 0; i < ITERATIONS; i++) {
        // As in the original, two keys change with every iteration, so that no iteration repeats another one.
        if (sort.rank == 0 && sort.count > 2 * ITERATIONS) {
            sort.keys[i] = i;
            sort.keys[i + ITERATIONS] = (1 << sort.class.log_largest_key) - 1 - i;
        }
        sort_once(&sort);
    }
    double mine = MPI_Wtime() - start, seconds = 0.0;
    MPI_Reduce(&mine, &seconds, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    // The keys as they were made are what is verified.
    free(sort.keys);
    make_keys(&sort);
    sort_once(&sort);
    int verified[3] = {is_ascending(&sort), is_complete(&sort), has_serial_places(&sort)}, all[3];
    MPI_Allreduce(verified, all, 3, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
    bool successful = all[0] && all[1] && all[2];
    if (sort.rank == 0) {
        printf("\n IS Benchmark Completed\n Class           = %24c\n Size            = %24lld\n Iterations      = %24d\n"
               " Time in seconds = %24.3f\n Total processes = %24d\n Mop/s total     = %24.2f\n Operation type  = %24s\n"
               " Verification    = %24s\n",
               sort.class.name, (long long)total, ITERATIONS, seconds, sort.ranks,
               (double)total * ITERATIONS / seconds / 1e6, "keys ranked", successful ? "SUCCESSFUL" : "UNSUCCESSFUL");
        if (!successful) {
            printf(" ascending: %s, complete: %s, serial places: %s\n", all[0] ? "yes" : "no", all[1] ? "yes" : "no",
                   all[2] ? "yes" : "no");
        }
    }
    free(sort.keys);
    free(sort.sorted);
    MPI_Finalize();
    return successful ? 0 : 1;
}
