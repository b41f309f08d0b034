/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Which path messages take that stay on the host: paths SELF OTHERS, how many of ten short messages to itself and to another endpoint of its
 * board are to be frames, and not in shared memory. Both ends have what the environment says. */
#include <open-mx.h>

#include "check.h"

#define ALL (~(uint64_t)0)
#define LONG_MS 20000
#define COUNT 10
#define COUNTERS 85

static omx_endpoint_t e, other;

/* What the board has counted under this name. */
static uint32_t counted(const char *label)
{
    static uint32_t values[COUNTERS];
    char text[128];
    OK(omx_progress(e));
    OK(omx_progress(other));
    /* They show what they counted when they sleep, or now and then. */
    omx_status_t status;
    uint32_t result;
    OK(omx_wait_any(e, 99, ALL, &status, &result, 1));
    OK(omx_wait_any(other, 99, ALL, &status, &result, 1));
    OK(omx_get_info(e, OMX_INFO_COUNTER_VALUES, NULL, 0, values, sizeof values));
    for (uint8_t i = 0; i < COUNTERS; i++) {
        OK(omx_get_info(e, OMX_INFO_COUNTER_LABEL, &i, 1, text, sizeof text));
        if (!strcmp(text, label))
            return values[i];
    }
    CHECK(!"there is such a counter");
    return 0;
}

static omx_status_t finish(omx_endpoint_t endpoint, omx_request_t *request)
{
    omx_status_t status;
    uint32_t result = 0;
    while (!result) {
        OK(omx_progress(e));
        OK(omx_progress(other));
        OK(omx_test(endpoint, request, &status, &result));
    }
    CHECK(status.code == OMX_SUCCESS);
    return status;
}

static void send(omx_endpoint_t at, omx_endpoint_addr_t to, size_t len, unsigned seed)
{
    unsigned char *out = malloc(len), *in = calloc(1, len);
    omx_request_t request, receive;
    fill(out, len, seed);
    OK(omx_isend(e, out, len, to, 5, NULL, &request));
    OK(omx_irecv(at, in, len, 5, ALL, NULL, &receive));
    omx_status_t status = finish(at, &receive);
    CHECK(status.xfer_length == len && filled(in, len, seed));
    finish(e, &request);
    free(out);
    free(in);
}

/* Ten short ones, of which so many are to be frames; then long ones. */
static void all(omx_endpoint_t at, omx_endpoint_addr_t to, uint32_t frames, uint32_t shared)
{
    uint32_t tiny = counted("SEND_TINY"), in_memory = counted("SHARED_TINY");
    for (unsigned i = 0; i < COUNT; i++)
        send(at, to, 8, i);
    /* On a busy machine some frames are sent again. */
    uint32_t sent = counted("SEND_TINY") - tiny;
    CHECK(frames == 0 ? sent == 0 : sent >= frames);
    RETURNS(counted("SHARED_TINY") - in_memory, shared);
    in_memory = counted("SHARED_RNDV");
    send(at, to, 100, 1);
    send(at, to, 20000, 2);
    send(at, to, 3 << 20, 3);
    CHECK((counted("SHARED_RNDV") > in_memory) == (shared > 0));
}

int main(int argc, char **argv)
{
    omx_endpoint_addr_t self, address;
    omx_request_t request;
    uint64_t nic;
    uint32_t id;
    CHECK(argc == 3);
    uint32_t of_self = (uint32_t)atoi(argv[1]), of_others = (uint32_t)atoi(argv[2]);
    OK(omx_init());
    OK(omx_open_endpoint(0, OMX_ANY_ENDPOINT, 7, NULL, 0, &e));
    OK(omx_open_endpoint(0, OMX_ANY_ENDPOINT, 7, NULL, 0, &other));
    /* Itself, also when it connects to itself. */
    OK(omx_get_endpoint_addr(e, &self));
    OK(omx_decompose_endpoint_addr(self, &nic, &id));
    all(e, self, of_self, 0);
    OK(omx_connect(e, nic, id, 7, LONG_MS, &address));
    CHECK(!memcmp(&self, &address, sizeof self));
    all(e, address, of_self, 0);
    OK(omx_get_endpoint_addr(other, &address));
    OK(omx_decompose_endpoint_addr(address, &nic, &id));
    OK(omx_iconnect(e, nic, id, 7, 1, NULL, &request));
    address = finish(e, &request).addr;
    all(other, address, of_others, COUNT - of_others);
    OK(omx_close_endpoint(e));
    OK(omx_close_endpoint(other));
    OK(omx_finalize());
    puts("paths done");
    return 0;
}
