/* What `fi_getinfo` supports and refuses (docs/spec/ofi-provider.md section 3): hints INTERFACE OTHER_INTERFACE */

#include "end.h"

static struct fi_info *wanted;
static int failures;

static int ask(uint32_t version, const char *node, uint64_t flags, struct fi_info **info) {
    *info = NULL;
    return fi_getinfo(version, node, NULL, flags, wanted, info);
}

/* One wish, by itself, that is fulfilled or not. */
#define WISH(fulfilled, wish)                                                                                          \
    do {                                                                                                               \
        wanted = hints();                                                                                              \
        wish;                                                                                                          \
        struct fi_info *info;                                                                                          \
        int result = ask(FI_VERSION(1, 17), NULL, 0, &info);                                                           \
        if (result != ((fulfilled) ? 0 : -FI_ENODATA)) {                                                               \
            fprintf(stderr, "%s: %d\n", #wish, result);                                                                \
            failures++;                                                                                                \
        }                                                                                                              \
        fi_freeinfo(info);                                                                                             \
        fi_freeinfo(wanted);                                                                                           \
    } while (0)

static void wishes(void) {
    WISH(true, (void) 0);
    int mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    WISH(false, wanted->caps |= FI_RMA);
    WISH(false, (wanted->caps |= FI_RMA, wanted->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED));
    WISH(true, (wanted->caps |= FI_RMA, wanted->domain_attr->mr_mode = mr_mode));
    WISH(true, (wanted->caps |= FI_RMA | FI_READ | FI_REMOTE_WRITE, wanted->domain_attr->mr_mode = mr_mode | FI_MR_LOCAL));
    WISH(true, (wanted->caps |= FI_ATOMIC, wanted->domain_attr->mr_mode = mr_mode));
    WISH(true, (wanted->tx_attr->msg_order = FI_ORDER_SAS | FI_ORDER_ATOMIC_WAW, wanted->domain_attr->mr_mode = mr_mode));
    WISH(false, wanted->tx_attr->msg_order = FI_ORDER_SAS | FI_ORDER_ATOMIC_WAW);
    WISH(true, (wanted->tx_attr->rma_iov_limit = 1, wanted->domain_attr->mr_mode = mr_mode));
    WISH(false, (wanted->tx_attr->rma_iov_limit = 2, wanted->domain_attr->mr_mode = mr_mode));
    WISH(false, wanted->caps |= FI_ATOMIC);
    WISH(false, wanted->caps |= FI_HMEM);
    WISH(true, wanted->caps |= FI_DIRECTED_RECV | FI_SOURCE | FI_MULTI_RECV | FI_LOCAL_COMM | FI_REMOTE_COMM);
    WISH(true, wanted->caps = 0);
    WISH(true, wanted->mode = 0);
    WISH(false, wanted->addr_format = FI_SOCKADDR_IN);
    WISH(false, wanted->ep_attr->type = FI_EP_MSG);
    WISH(false, wanted->ep_attr->type = FI_EP_DGRAM);
    WISH(true, wanted->ep_attr->type = FI_EP_UNSPEC);
    WISH(false, wanted->ep_attr->protocol = FI_PROTO_UDP);
    WISH(false, wanted->ep_attr->protocol_version = 2);
    WISH(true, wanted->ep_attr->max_msg_size = 0xfffffff0);
    WISH(false, wanted->ep_attr->max_msg_size = 1ul << 32);
    WISH(true, wanted->ep_attr->mem_tag_format = 0x00ffffffffffffff);
    WISH(false, wanted->ep_attr->mem_tag_format = 0x01ffffffffffffff);
    WISH(true, (wanted->caps = FI_MSG, wanted->ep_attr->mem_tag_format = ~0ul));
    WISH(true, wanted->ep_attr->tx_ctx_cnt = 1);
    WISH(false, wanted->ep_attr->tx_ctx_cnt = 2);
    WISH(false, wanted->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT);
    WISH(false, wanted->ep_attr->auth_key_size = 8);
    WISH(true, wanted->tx_attr->op_flags = FI_COMPLETION | FI_DELIVERY_COMPLETE);
    WISH(false, wanted->tx_attr->op_flags = FI_COMMIT_COMPLETE);
    WISH(true, wanted->tx_attr->msg_order = FI_ORDER_SAS);
    WISH(false, wanted->tx_attr->msg_order = FI_ORDER_SAS | FI_ORDER_RAW);
    WISH(false, wanted->tx_attr->comp_order = FI_ORDER_STRICT);
    WISH(true, wanted->tx_attr->inject_size = 4096);
    WISH(false, wanted->tx_attr->inject_size = 4097);
    WISH(false, wanted->tx_attr->size = 1 << 20);
    WISH(true, wanted->tx_attr->iov_limit = 8);
    WISH(false, wanted->tx_attr->iov_limit = 9);
    WISH(false, wanted->tx_attr->rma_iov_limit = 1);
    WISH(false, wanted->tx_attr->caps = FI_RMA);
    WISH(false, wanted->rx_attr->msg_order = FI_ORDER_STRICT);
    WISH(false, wanted->rx_attr->op_flags = FI_INJECT);
    WISH(false, wanted->rx_attr->iov_limit = 9);
    WISH(false, wanted->rx_attr->caps = FI_REMOTE_WRITE);
    WISH(true, wanted->domain_attr->threading = FI_THREAD_DOMAIN);
    WISH(false, wanted->domain_attr->threading = 99);
    WISH(true, wanted->domain_attr->data_progress = FI_PROGRESS_MANUAL);
    WISH(false, wanted->domain_attr->data_progress = 7);
    WISH(true, wanted->domain_attr->resource_mgmt = FI_RM_ENABLED);
    WISH(true, wanted->domain_attr->av_type = FI_AV_MAP);
    WISH(true, wanted->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY);
    WISH(true, wanted->domain_attr->cq_data_size = 4);
    WISH(false, wanted->domain_attr->cq_data_size = 8);
    WISH(false, wanted->domain_attr->caps = FI_SHARED_AV);
    WISH(false, wanted->domain_attr->max_err_data = 64);
    WISH(false, wanted->domain_attr->name = strdup("nosuch0"));
    WISH(true, wanted->fabric_attr->name = strdup("mx"));
    WISH(false, wanted->fabric_attr->name = strdup("ib0"));
}

int main(int count, char **arguments) {
    CHECK(count == 3, "usage: hints INTERFACE OTHER_INTERFACE");
    setenv("OMX_IFACES", arguments[1], 1);
    wishes();

    wanted = hints();
    wanted->tx_attr->op_flags = FI_COMPLETION | FI_DELIVERY_COMPLETE;
    wanted->rx_attr->op_flags = FI_COMPLETION;
    wanted->domain_attr->threading = FI_THREAD_DOMAIN;
    wanted->domain_attr->av_type = FI_AV_MAP;
    wanted->tx_attr->inject_size = 64;
    struct fi_info *info;
    FI(ask(FI_VERSION(1, 17), NULL, 0, &info));
    CHECK(!info->next, "one entry");
    CHECK(info->tx_attr->op_flags == (FI_COMPLETION | FI_DELIVERY_COMPLETE) && info->rx_attr->op_flags == FI_COMPLETION, "flags follow");
    CHECK(info->domain_attr->threading == FI_THREAD_DOMAIN && info->domain_attr->av_type == FI_AV_MAP, "threading follows");
    CHECK(info->tx_attr->inject_size == 64, "%zu", info->tx_attr->inject_size);
    CHECK((info->caps & (FI_MSG | FI_TAGGED | FI_SEND | FI_RECV)) == (FI_MSG | FI_TAGGED | FI_SEND | FI_RECV), "caps %lx", info->caps);
    CHECK(!(info->tx_attr->caps & FI_LOCAL_COMM) && !info->nic && info->src_addr && info->src_addrlen == 16, "what fabtests ask for");
    CHECK(strcmp(info->domain_attr->name, arguments[1]) == 0, "domain %s", info->domain_attr->name);
    fi_freeinfo(info);
    fi_freeinfo(wanted);

    /* What a program that may access the memory of others is told, and one that asks for nothing. */
    for (int asks = 0; asks < 2; asks++) {
        wanted = hints();
        wanted->caps = asks ? FI_RMA : 0;
        wanted->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
        FI(ask(FI_VERSION(1, 17), NULL, 0, &info));
        uint64_t rights = FI_RMA | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
        CHECK((info->caps & rights) == rights, "caps %lx", info->caps);
        CHECK(info->domain_attr->mr_mode == (FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY), "mode %x", info->domain_attr->mr_mode);
        CHECK(info->tx_attr->rma_iov_limit == 1 && info->domain_attr->mr_key_size == 8, "limits");
        fi_freeinfo(info);
        fi_freeinfo(wanted);
    }

    /* The interface that a program names, and a peer that it names. */
    wanted = hints();
    wanted->domain_attr->name = strdup(arguments[2]);
    setenv("OMX_IFACES", "", 1);
    FI(ask(FI_VERSION(1, 17), "02:00:00:00:00:99", 0, &info));
    CHECK(strcmp(info->domain_attr->name, arguments[2]) == 0, "domain %s", info->domain_attr->name);
    CHECK(info->dest_addrlen == 16 && memcmp(info->dest_addr, "\2\0\0\0\0\x99", 6) == 0, "the peer's address");
    fi_freeinfo(info);
    CHECK(ask(FI_VERSION(1, 17), "no.such.host", 0, &info) == -FI_ENODATA, "a name that nobody has");
    CHECK(ask(FI_VERSION(1, 17), "02:00:00:00:00:99", FI_SOURCE, &info) == -FI_ENODATA, "an address that is not this host's");
    fi_freeinfo(wanted);

    /* Objects that the provider has not. */
    struct end end;
    open_end(&end, -1, 0, (struct wishes){0});
    struct fid_ep *other;
    struct fid_poll *poll;
    CHECK(fi_scalable_ep(end.domain, end.info, &other, NULL) == -FI_ENOSYS, "scalable endpoints");
    CHECK(fi_poll_open(end.domain, NULL, &poll) == -FI_ENOSYS, "poll sets");
    struct fi_av_attr named = {.name = "shared"};
    struct fid_av *av;
    CHECK(fi_av_open(end.domain, &named, &av, NULL) == -FI_ENOSYS, "vectors with a name");
    struct fi_cq_attr waits = {.wait_obj = FI_WAIT_FD};
    struct fid_cq *cq;
    CHECK(fi_cq_open(end.domain, &waits, &cq, NULL) == -FI_ENOSYS, "queues with a descriptor");
    char byte = 0;
    CHECK(end.ep->rma && end.ep->rma->write(end.ep, &byte, 1, NULL, 0, 0, 0, NULL) == -FI_ENOSYS, "remote access");
    CHECK(fi_shutdown(end.ep, 0) == -FI_ENOSYS, "connections");
    CHECK(fi_ep_bind(end.ep, &end.av->fid, 0) == -FI_EOPBADSTATE, "a binding after enable");
    CHECK(fi_tsend(end.ep, &byte, 1, NULL, 77, 0, NULL) == -FI_EINVAL, "a peer that was not inserted");
    unsigned char bytes[16] = {0};
    fi_addr_t number = 0;
    CHECK(fi_av_insert(end.av, bytes, 1, &number, 0, NULL) == 0 && number == FI_ADDR_NOTAVAIL, "bytes that are no address");
    struct fi_eq_attr attr = {.flags = FI_WRITE, .wait_obj = FI_WAIT_UNSPEC};
    struct fid_eq *eq;
    FI(fi_eq_open(end.fabric, &attr, &eq, NULL));
    struct fi_eq_entry entry = {.data = 5}, got;
    uint32_t event;
    CHECK(fi_eq_read(eq, &event, &got, sizeof got, 0) == -FI_EAGAIN, "an empty queue");
    CHECK(fi_eq_write(eq, FI_NOTIFY, &entry, sizeof entry, 0) == sizeof entry, "an event is written");
    CHECK(fi_eq_sread(eq, &event, &got, sizeof got, 1000, FI_PEEK) == sizeof got && got.data == 5, "and looked at");
    CHECK(fi_eq_read(eq, &event, &got, sizeof got, 0) == sizeof got && event == FI_NOTIFY, "and read");
    FI(fi_close(&eq->fid));
    struct fid_mr *mr;
    FI(fi_mr_reg(end.domain, bytes, sizeof bytes, FI_SEND, 0, 42, 0, &mr, NULL));
    CHECK(fi_mr_key(mr) == 42, "the key that was asked for");
    FI(fi_close(&mr->fid));
    close_end(&end);
    return failures != 0;
}
