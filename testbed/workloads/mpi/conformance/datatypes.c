// Checks of derived datatypes: what lies between the blocks of a type must stay as it was.
#include "conformance.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// Sends `count` elements of the type from a filled buffer of `extent` bytes to the right neighbour, once to a posted receive
// and once unexpectedly, and compares every byte with what MPI_Pack and MPI_Unpack make of these contents.
static void exchange(MPI_Datatype type, int count, size_t extent) {
    MPI_Type_commit(&type);
    int packed_size = 0, position = 0;
    MPI_Pack_size(count, type, comm, &packed_size);
    unsigned char *out = new_bytes(extent), *in = new_bytes(extent), *expected = new_bytes(extent);
    unsigned char *packed = new_bytes((size_t)packed_size);
    fill(out, extent, seed_of(rank, 1));
    fill(expected, extent, seed_of(left(), 1));
    MPI_Pack(expected, count, type, packed, packed_size, &position, comm);
    memset(expected, 0x55, extent);
    memset(in, 0x55, extent);
    int unpacked = 0;
    MPI_Unpack(packed, position, &unpacked, expected, count, type, comm);

    for (int posted = 0; posted < 2; posted++) {
        step("%d elements, %s", count, posted ? "posted" : "unexpected");
        memset(in, 0x55, extent);
        MPI_Request requests[2];
        MPI_Status status;
        if (posted) {
            MPI_Irecv(in, count, type, left(), 4, comm, &requests[0]);
            MPI_Barrier(comm);
        }
        MPI_Isend(out, count, type, right(), 4, comm, &requests[1]);
        if (!posted) {
            MPI_Probe(left(), 4, comm, &status);
            MPI_Irecv(in, count, type, left(), 4, comm, &requests[0]);
        }
        MPI_Wait(&requests[0], &status);
        MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
        int elements = 0;
        MPI_Get_count(&status, type, &elements);
        EXPECT(elements == count, "%d elements in the status, expected %d", elements, count);
        for (size_t i = 0; i < extent; i++) {
            if (in[i] != expected[i]) {
                fail("byte %zu of %zu is 0x%02x, expected 0x%02x", i, extent, in[i], expected[i]);
                break;
            }
        }
    }
    MPI_Type_free(&type);
    free_bytes(out, extent);
    free_bytes(in, extent);
    free_bytes(expected, extent);
    free_bytes(packed, (size_t)packed_size);
}

// Columns of a matrix of ints: blocks of 3 ints, one every 8 ints.
static void vector(int blocks) {
    MPI_Datatype type;
    MPI_Type_vector(blocks, 3, 8, MPI_INT, &type);
    exchange(type, 1, (size_t)blocks * 8 * sizeof(int));
}

void check_vector_eager(void) { vector(10); }

void check_vector_large(void) { vector(60000); }

typedef struct particle {
    double position[3];
    char kind;
    int number;
    float weight[2];
    char unused[11];
    int16_t flags;
} particle;

static void structure(int count) {
    const int lengths[] = {3, 1, 1, 2, 1};
    const MPI_Aint places[] = {offsetof(particle, position), offsetof(particle, kind), offsetof(particle, number),
                               offsetof(particle, weight), offsetof(particle, flags)};
    const MPI_Datatype types[] = {MPI_DOUBLE, MPI_CHAR, MPI_INT, MPI_FLOAT, MPI_INT16_T};
    MPI_Datatype fields, type;
    MPI_Type_create_struct(5, lengths, places, types, &fields);
    MPI_Type_create_resized(fields, 0, sizeof(particle), &type);
    exchange(type, count, (size_t)count * sizeof(particle));
    MPI_Type_free(&fields);
}

void check_struct_eager(void) { structure(3); }

void check_struct_large(void) { structure(20000); }

// Blocks of growing lengths at irregular places, which are not in ascending order.
static void hindexed(int blocks) {
    int *lengths = calloc((size_t)blocks, sizeof *lengths);
    MPI_Aint *places = calloc((size_t)blocks, sizeof *places);
    for (int i = 0; i < blocks; i++) {
        lengths[i] = i * 5 % 13;
        places[i] = (MPI_Aint)((i ^ 1) < blocks ? i ^ 1 : i) * 17 + i % 4;
    }
    MPI_Datatype type;
    MPI_Type_create_hindexed(blocks, lengths, places, MPI_BYTE, &type);
    exchange(type, 1, (size_t)blocks * 17 + 32);
    free(lengths);
    free(places);
}

void check_hindexed_eager(void) { hindexed(12); }

void check_hindexed_large(void) { hindexed(100000); }
