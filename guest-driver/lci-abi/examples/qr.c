/* QR factorization by Householder reflections with column pivoting, compared with a sequential run: qr [COLUMNS]
 * Columns are spread over the nodes in turn. In each step all agree on the longest column (reduce to all), and its owner broadcasts the
 * reflection, which is one packet here. */
#include "wait.h"

#include <lci.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COLUMNS_MAX 120

struct pivot {
    double square;
    int32_t number;
    int32_t step;
};

static struct pivot longest;
static volatile int candidates, agreed_step = -1, reflection_step = -1;
static volatile int pivot_number;
static double reflection[COLUMNS_MAX];
static int size = 48;

static int is_longer(const struct pivot *a, const struct pivot *b)
{
    return a->square > b->square || (a->square == b->square && a->number < b->number);
}

/* A pivot to node 0 is a candidate, one to all is what node 0 has chosen; a longer packet to all is a reflection. */
int lci_upcall(int src, void *pkt, int bytes, int mcast)
{
    struct pivot pivot;
    (void)src;
    memcpy(&pivot, pkt, sizeof pivot);
    if (bytes > (int)(sizeof pivot + sizeof reflection)) {
        fprintf(stderr, "a packet that is too long\n");
        exit(1);
    }
    if (bytes > (int)sizeof pivot) {
        memcpy(reflection, (char *)pkt + sizeof pivot, bytes - sizeof pivot);
        reflection_step = pivot.step;
    } else if (mcast) {
        pivot_number = pivot.number;
        agreed_step = pivot.step;
    } else {
        if (is_longer(&pivot, &longest))
            longest = pivot;
        candidates++;
    }
    return 0;
}

static void launch(int to, const struct pivot *pivot, const double *v, int rows)
{
    char *pkt = lci_send_alloc();
    memcpy(pkt, pivot, sizeof *pivot);
    if (rows)
        memcpy(pkt + sizeof *pivot, v, rows * sizeof *v);
    int bytes = (int)sizeof *pivot + rows * (int)sizeof *v;
    if (to < 0 ? lci_bcast_launch(pkt, bytes) : lci_ucast_launch(to, pkt, bytes)) {
        fprintf(stderr, "%s\n", lci_error());
        exit(1);
    }
}

static void wait_for(volatile int *what, int value)
{
    while (*what != value)
        wait_a_moment();
}

struct column {
    double values[COLUMNS_MAX];
    int is_done;
};

static void fill(struct column *column, int number)
{
    uint32_t word = 2654435761u * (number + 77);
    column->is_done = 0;
    for (int row = 0; row < size; row++) {
        word ^= word << 13, word ^= word >> 17, word ^= word << 5;
        column->values[row] = word / 4294967296.0 - 0.5;
    }
}

static double square(const struct column *column, int step)
{
    double sum = 0;
    for (int row = step; row < size; row++)
        sum += column->values[row] * column->values[row];
    return sum;
}

static struct pivot longest_of(const struct column *columns, int first, int stride, int step)
{
    struct pivot best = {-1, INT32_MAX, step};
    for (int number = first; number < size; number += stride) {
        struct pivot here = {square(&columns[number], step), number, step};
        if (!columns[number].is_done && is_longer(&here, &best))
            best = here;
    }
    return best;
}

static void reflect(const struct column *column, int step, double *v)
{
    double length = 0, norm = sqrt(square(column, step));
    memcpy(v, &column->values[step], (size - step) * sizeof *v);
    v[0] += v[0] < 0 ? -norm : norm;
    for (int row = 0; row < size - step; row++)
        length += v[row] * v[row];
    length = sqrt(length);
    for (int row = 0; length > 0 && row < size - step; row++)
        v[row] /= length;
}

static void apply(struct column *columns, int first, int stride, int step, int pivot, const double *v)
{
    for (int number = first; number < size; number += stride) {
        struct column *column = &columns[number];
        double product = 0;
        if (column->is_done)
            continue;
        for (int row = step; row < size; row++)
            product += column->values[row] * v[row - step];
        for (int row = step; row < size; row++)
            column->values[row] -= 2 * product * v[row - step];
        column->is_done = number == pivot;
    }
}

int main(int argc, char **argv)
{
    static struct column columns[COLUMNS_MAX], expected[COLUMNS_MAX];
    if (argc > 1)
        size = atoi(argv[1]);
    if (size < 1 || size > COLUMNS_MAX) {
        fprintf(stderr, "1 to %d columns\n", COLUMNS_MAX);
        return 1;
    }
    for (int number = 0; number < size; number++)
        fill(&columns[number], number);
    memcpy(expected, columns, sizeof columns);
    for (int step = 0; step < size; step++) {
        struct pivot pivot = longest_of(expected, 0, 1, step);
        reflect(&expected[pivot.number], step, reflection);
        apply(expected, 0, 1, step, pivot.number, reflection);
    }
    longest = (struct pivot){-1, INT32_MAX, 0};
    if (lci_init(NULL)) {
        fprintf(stderr, "%s\n", lci_error());
        return 1;
    }
    int me = lci_me(), nodes = lci_size();
    uint64_t start = lci_now_ns();
    for (int step = 0; step < size; step++) {
        struct pivot own = longest_of(columns, me, nodes, step);
        if (me == 0) {
            wait_for(&candidates, nodes - 1);
            if (is_longer(&own, &longest))
                longest = own;
            longest.step = step;
            pivot_number = longest.number;
            launch(-1, &longest, NULL, 0);
            /* No one sends the next candidate before the reflection of this step. */
            candidates = 0;
            longest = (struct pivot){-1, INT32_MAX, 0};
        } else {
            launch(0, &own, NULL, 0);
            wait_for(&agreed_step, step);
        }
        int number = pivot_number;
        if (number % nodes == me) {
            double v[COLUMNS_MAX];
            own.step = step;
            reflect(&columns[number], step, v);
            launch(-1, &own, v, size - step);
            apply(columns, me, nodes, step, number, v);
        } else {
            wait_for(&reflection_step, step);
            apply(columns, me, nodes, step, number, reflection);
        }
    }
    uint64_t took = lci_now_ns() - start;
    for (int number = me; number < size; number += nodes)
        if (memcmp(columns[number].values, expected[number].values, size * sizeof(double))) {
            fprintf(stderr, "node %d: column %d is wrong\n", me, number);
            return 1;
        }
    if (me == 0)
        printf("QR of %d columns: right, %.1f ms\n", size, took / 1e6);
    return lci_finalize() != 0;
}
