/* A program that gives the memory of each receive back and gets other memory at the same place for the next one, as malloc and free of
 * large buffers do: `reuses` says its address and receives from one partner; `reuses ADDRESS` is that partner. */
#include <stdint.h>
#include <sys/mman.h>

#include "myriexpress.h"

#include "check.h"

#define KEY 0x78
#define ALL MX_MATCH_MASK_NONE
#define LONG_MS 60000

enum { LEN = 1 << 20, ROUNDS = 6 };

static mx_endpoint_t e;

static mx_status_t finish(mx_request_t *request)
{
    mx_status_t status;
    uint32_t result;
    OK(mx_wait(e, request, LONG_MS, &status, &result));
    CHECK(result == 1 && status.code == MX_STATUS_SUCCESS);
    return status;
}

static void send(mx_endpoint_addr_t to, void *bytes, uint32_t len, uint64_t info)
{
    mx_segment_t segment = {bytes, len};
    mx_request_t request;
    OK(mx_isend(e, &segment, 1, to, info, NULL, &request));
    finish(&request);
}

static mx_status_t receive(void *bytes, uint32_t len, uint64_t info)
{
    mx_segment_t segment = {bytes, len};
    mx_request_t request;
    OK(mx_irecv(e, &segment, 1, info, ALL, NULL, &request));
    return finish(&request);
}

/* Receives to memory that was never there before, always at the same place. */
static void *receive_to_new_memory(void *place, uint64_t round)
{
    int fixed = place ? MAP_FIXED_NOREPLACE : 0;
    unsigned char *bytes = mmap(place, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | fixed, -1, 0);
    CHECK(bytes != MAP_FAILED && (!place || bytes == place));
    memset(bytes, 0, LEN);
    receive(bytes, LEN, round);
    CHECK(filled(bytes, LEN, round));
    OK(munmap(bytes, LEN));
    return bytes;
}

int main(int argc, char **argv)
{
    static unsigned char bytes[LEN];
    mx_endpoint_addr_t peer;
    uint64_t nic;
    void *place = NULL;
    mx_set_error_handler(MX_ERRORS_RETURN);
    OK(mx_init());
    OK(mx_open_endpoint(0, argc > 1 ? MX_ANY_ENDPOINT : 0, KEY, NULL, 0, &e));
    if (argc > 1) {
        OK(mx_connect(e, strtoull(argv[1], NULL, 16), 0, KEY, LONG_MS, &peer));
        send(peer, bytes, 0, 0);
        for (uint64_t round = 1; round <= ROUNDS; round++) {
            fill(bytes, LEN, round);
            send(peer, bytes, LEN, round);
        }
        receive(bytes, 0, 0);
    } else {
        OK(mx_board_number_to_nic_id(0, &nic));
        printf("%llx\n", (unsigned long long)nic);
        fflush(stdout);
        peer = receive(bytes, 0, 0).source;
        for (uint64_t round = 1; round <= ROUNDS; round++)
            place = receive_to_new_memory(place, round);
        send(peer, bytes, 0, 0);
    }
    OK(mx_close_endpoint(e));
    OK(mx_finalize());
    puts("reuses done");
    return 0;
}
