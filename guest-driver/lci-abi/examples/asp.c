/* All shortest paths (Floyd and Warshall) on a matrix whose rows are spread over the nodes, compared with a sequential run: asp [VERTICES]
 * In step k the owner of row k broadcasts it. A row is one packet here. */
#include "wait.h"

#include <lci.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERTICES_MAX 255
#define MISSING (1u << 30)

static uint32_t through[VERTICES_MAX][VERTICES_MAX];
static volatile int has[VERTICES_MAX];
static int size = 128;

/* Number of the row, then its weights. */
int lci_upcall(int src, void *pkt, int bytes, int mcast)
{
    uint32_t k;
    (void)src;
    memcpy(&k, pkt, sizeof k);
    if (mcast != LCI_ALL || bytes != 4 * (size + 1) || k >= (uint32_t)size) {
        fprintf(stderr, "a packet that is no row\n");
        exit(1);
    }
    memcpy(through[k], (char *)pkt + 4, 4 * size);
    has[k] = 1;
    return 0;
}

static void fill(uint32_t *row, int vertex)
{
    uint32_t number = 2654435761u * (vertex + 1);
    for (int to = 0; to < size; to++) {
        number ^= number << 13, number ^= number >> 17, number ^= number << 5;
        row[to] = to == vertex ? 0 : number % 3 == 0 ? MISSING : number % 1000 + 1;
    }
}

static void relax(uint32_t *row, const uint32_t *through_row, int k)
{
    uint32_t first = row[k];
    for (int to = 0; to < size; to++)
        if (first + through_row[to] < row[to])
            row[to] = first + through_row[to];
}

static int owner_of(int k, int nodes)
{
    return k * nodes / size;
}

int main(int argc, char **argv)
{
    static uint32_t rows[VERTICES_MAX][VERTICES_MAX], expected[VERTICES_MAX][VERTICES_MAX];
    if (argc > 1)
        size = atoi(argv[1]);
    if (size < 1 || size > VERTICES_MAX) {
        fprintf(stderr, "1 to %d vertices\n", VERTICES_MAX);
        return 1;
    }
    for (int vertex = 0; vertex < size; vertex++)
        fill(rows[vertex], vertex);
    memcpy(expected, rows, sizeof rows);
    for (int k = 0; k < size; k++)
        for (int row = 0; row < size; row++)
            relax(expected[row], expected[k], k);
    if (lci_init(NULL)) {
        fprintf(stderr, "%s\n", lci_error());
        return 1;
    }
    int me = lci_me(), nodes = lci_size();
    uint64_t start = lci_now_ns();
    for (uint32_t k = 0; k < (uint32_t)size; k++) {
        if (owner_of(k, nodes) == me) {
            void *pkt = lci_send_alloc();
            memcpy(through[k], rows[k], 4 * size);
            memcpy(pkt, &k, 4);
            memcpy((char *)pkt + 4, rows[k], 4 * size);
            if (lci_bcast_launch(pkt, 4 * (size + 1))) {
                fprintf(stderr, "%s\n", lci_error());
                return 1;
            }
        }
        while (owner_of(k, nodes) != me && !has[k])
            wait_a_moment();
        for (int row = 0; row < size; row++)
            if (owner_of(row, nodes) == me)
                relax(rows[row], through[k], k);
    }
    uint64_t took = lci_now_ns() - start;
    for (int row = 0; row < size; row++)
        if (owner_of(row, nodes) == me && memcmp(rows[row], expected[row], 4 * size)) {
            fprintf(stderr, "node %d: row %d is wrong\n", me, row);
            return 1;
        }
    if (me == 0)
        printf("shortest paths of %d vertices: right, %.1f ms\n", size, took / 1e6);
    return lci_finalize() != 0;
}
