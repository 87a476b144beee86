#include "rig.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <infiniband/mlx5dv.h>

enum { DEPTH = 64, SECONDS = 10, ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
					      IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_RELAXED_ORDERING };

void die(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	fputs("order: error: ", stderr);
	vfprintf(stderr, format, list);
	fputc('\n', stderr);
	va_end(list);
	exit(2);
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

static struct ibv_context *open_device(const char *name)
{
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);
	struct ibv_context *context = NULL;

	for (int i = 0; i < count && !context; i++) {
		const char *found = ibv_get_device_name(list[i]);

		if (name ? !strcmp(found, name) : mlx5dv_is_supported(list[i])) {
			/* Keys of its own making need a user context of the device (DEVX). */
			struct mlx5dv_context_attr attr = { .flags = MLX5DV_CONTEXT_FLAGS_DEVX };

			context = mlx5dv_is_supported(list[i]) ? mlx5dv_open_device(list[i], &attr) : ibv_open_device(list[i]);
			if (!context)
				die("cannot open %s: %s", found, strerror(errno));
		}
	}
	if (!context)
		die("no %s among %d RDMA devices", name ? name : "mlx5 device", count);
	ibv_free_device_list(list);
	return context;
}

static void *allocate(size_t length)
{
	void *bytes = aligned_alloc(4096, length);

	if (!bytes)
		die("out of memory");
	memset(bytes, 0, length);
	return bytes;
}

static struct memory region(struct rig *rig)
{
	void *bytes = allocate(REGION);
	struct ibv_mr *mr = ibv_reg_mr(rig->pd, bytes, REGION, ACCESS);

	if (!mr)
		die("cannot register memory with relaxed ordering: %s", strerror(errno));
	return (struct memory){ bytes, mr->lkey, mr->rkey };
}

static uint32_t domain_number(struct ibv_pd *pd)
{
	struct mlx5dv_pd out = { 0 };
	struct mlx5dv_obj object = { .pd = { .in = pd, .out = &out } };

	if (mlx5dv_init_obj(&object, MLX5DV_OBJ_PD))
		die("the protection domain has no number");
	return out.pdn;
}

/* Sets a field of a command, in which bit 0 is the top bit of the first byte. */
static void put(uint8_t *bytes, unsigned bit, unsigned width, uint64_t value)
{
	for (unsigned i = 0; i < width; i++) {
		unsigned at = bit + width - 1 - i;

		if (value >> i & 1)
			bytes[at / 8] |= 0x80 >> at % 8;
	}
}

/* The same bytes through a key that verbs cannot ask for: CREATE_MKEY with relaxed_ordering_write and order_read_after_write
 * (layouts create_mkey_in and mkc of the programmer's reference manual, numbers as in the kernel's mlx5_ifc.h). */
static struct memory unordered(struct rig *rig, const struct memory *region)
{
	enum { MKC = 0x80, SIZE = 0x110 };
	uint8_t in[SIZE] = { 0 }, out[16] = { 0 };
	uint64_t address = (uintptr_t)region->bytes;
	struct mlx5dv_devx_umem *umem =
		mlx5dv_devx_umem_reg(rig->context, (void *)address, REGION, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);

	if (!umem)
		die("cannot pin memory for a key of DEVX: %s", strerror(errno));
	put(in, 0x00, 16, 0x200); /* CREATE_MKEY */
	put(in, 0x61, 1, 1); /* mkey_umem_valid */
	put(in, 0x300, 32, 8); /* translations_octword_actual_size: 16 pages */
	put(in, 0x320, 32, umem->umem_id);
	put(in, MKC + 0x0d, 1, 1); /* relaxed_ordering_write */
	put(in, MKC + 0x12, 4, 0xf); /* rw, rr, lw, lr */
	put(in, MKC + 0x16, 2, 1); /* access_mode_1_0: MTT */
	put(in, MKC + 0x20, 24, 0xffffff); /* qpn: any */
	put(in, MKC + 0x68, 24, domain_number(rig->pd));
	put(in, MKC + 0x80, 64, address); /* start_addr */
	put(in, MKC + 0xc0, 64, REGION); /* len */
	put(in, MKC + 0x1a0, 32, 8); /* translations_octword_size */
	put(in, MKC + 0x1d6, 2, 1); /* order_read_after_write: given up */
	put(in, MKC + 0x1da, 6, 12); /* log_page_size */
	if (!mlx5dv_devx_obj_create(rig->context, in, sizeof(in), out, sizeof(out)))
		die("the device refuses a key without read-after-write order: %s, status %#x, syndrome %#02x%02x%02x%02x",
		    strerror(errno), out[0], out[4], out[5], out[6], out[7]);

	uint32_t key = (uint32_t)(out[9] << 16 | out[10] << 8 | out[11]) << 8;

	return (struct memory){ region->bytes, key, key };
}

static struct end make_end(struct rig *rig)
{
	struct end end;

	end.sends = ibv_create_cq(rig->context, DEPTH, NULL, NULL, 0);
	end.receives = ibv_create_cq(rig->context, DEPTH, NULL, NULL, 0);
	if (!end.sends || !end.receives)
		die("cannot create a completion queue: %s", strerror(errno));

	struct ibv_qp_init_attr attr = {
		.send_cq = end.sends,
		.recv_cq = end.receives,
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 },
	};

	end.qp = ibv_create_qp(rig->pd, &attr);
	if (!end.qp)
		die("cannot create a queue pair: %s", strerror(errno));
	return end;
}

static void modify(struct end *end, struct ibv_qp_attr attr, int mask)
{
	int error = ibv_modify_qp(end->qp, &attr, mask | IBV_QP_STATE);

	if (error)
		die("cannot bring a queue pair to state %d: %s", attr.qp_state, strerror(error));
}

static void connect_end(struct rig *rig, struct end *end, const struct end *peer, int gid_index)
{
	union ibv_gid gid;

	if (ibv_query_gid(rig->context, 1, gid_index, &gid))
		die("no GID at index %d", gid_index);
	modify(end, (struct ibv_qp_attr){ .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ACCESS & 0xf },
	       IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	modify(end,
	       (struct ibv_qp_attr){
		       .qp_state = IBV_QPS_RTR,
		       .path_mtu = IBV_MTU_1024,
		       .dest_qp_num = peer->qp->qp_num,
		       .max_dest_rd_atomic = 16,
		       .min_rnr_timer = 12,
		       .ah_attr = { .is_global = 1,
				    .port_num = 1,
				    .grh = { .dgid = gid, .sgid_index = gid_index, .hop_limit = 64 } },
	       },
	       IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	/* 4.096 us * 2^18: about a second before a request is sent again. */
	modify(end, (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 18, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 16 },
	       IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

void rig_open(struct rig *rig, const char *device, int gid_index, bool unordered_keys)
{
	memset(rig, 0, sizeof(*rig));
	rig->context = open_device(device);
	rig->pd = ibv_alloc_pd(rig->context);
	if (!rig->pd)
		die("cannot allocate a protection domain: %s", strerror(errno));
	for (int i = 0; i < PAIRS; i++) {
		rig->active[i] = make_end(rig);
		rig->passive[i] = make_end(rig);
		connect_end(rig, &rig->active[i], &rig->passive[i], gid_index);
		connect_end(rig, &rig->passive[i], &rig->active[i], gid_index);
	}
	rig->source = region(rig);
	rig->target = region(rig);
	rig->flag = region(rig);
	rig->scratch = region(rig);
	if (unordered_keys) {
		rig->unordered_target = unordered(rig, &rig->target);
		rig->unordered_scratch = unordered(rig, &rig->scratch);
	}
}

void post(struct end *end, enum ibv_wr_opcode opcode, const struct memory *local, const struct memory *remote, uint32_t length,
	  struct extra extra)
{
	struct ibv_sge sge = { (uintptr_t)local->bytes, length, local->lkey };
	struct ibv_send_wr *bad, wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = (extra.quiet ? 0 : IBV_SEND_SIGNALED) | (extra.fence ? IBV_SEND_FENCE : 0),
	};

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = (uintptr_t)remote->bytes;
		wr.wr.atomic.rkey = remote->rkey;
		wr.wr.atomic.compare_add = extra.add;
	} else if (remote) {
		wr.wr.rdma.remote_addr = (uintptr_t)remote->bytes;
		wr.wr.rdma.rkey = remote->rkey;
	}
	if (ibv_post_send(end->qp, &wr, &bad))
		die("cannot post a request: %s", strerror(errno));
}

void post_receive(struct end *end)
{
	struct ibv_recv_wr *bad, wr = { 0 };

	if (ibv_post_recv(end->qp, &wr, &bad))
		die("cannot post a receive request: %s", strerror(errno));
}

void completed(struct ibv_cq *cq, const char *what)
{
	struct ibv_wc wc;
	double end = now() + SECONDS;
	int count;

	while (!(count = ibv_poll_cq(cq, 1, &wc)))
		if (now() > end)
			die("%s has not completed after %d s", what, SECONDS);
	if (count < 0)
		die("%s: the completion queue cannot be polled", what);
	if (wc.status != IBV_WC_SUCCESS)
		die("%s: %s (vendor %#x)", what, ibv_wc_status_str(wc.status), wc.vendor_err);
}

bool sees(const volatile uint8_t *byte, uint8_t value)
{
	double end = now() + SECONDS;

	while (__atomic_load_n(byte, __ATOMIC_ACQUIRE) != value)
		if (now() > end)
			return false;
	return true;
}

void settle(struct rig *rig, int pair)
{
	static const struct memory nothing;

	post_receive(&rig->passive[pair]);
	post(&rig->active[pair], IBV_WR_SEND, &nothing, NULL, 0, (struct extra){ .fence = true });
	completed(rig->passive[pair].receives, "the last message");
	completed(rig->active[pair].sends, "the last request");
}
