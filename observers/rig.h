/* Two connected pairs of queue pairs on one device, and memory that all of them may reach.
 *
 * Everything is registered with relaxed ordering. A program posts on the active ends and looks at the memory, or at the
 * completions, of the passive ends; all of it is in one process, so that "told out of band" is a plain statement.
 */
#ifndef RIG_H
#define RIG_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PAIRS = 2, REGION = 1 << 16 };

/* One end of a connection. */
struct end {
	struct ibv_qp *qp;
	struct ibv_cq *sends, *receives;
};

/* A buffer with its key. `unordered` also gives up read-after-write order (order_read_after_write), where asked for. */
struct memory {
	volatile uint8_t *bytes;
	uint32_t lkey, rkey;
};

struct rig {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct end active[PAIRS], passive[PAIRS];
	struct memory source, target, flag, scratch;
	/* The target and the scratch buffer again, through keys that ask for no order between a write and a later read. */
	struct memory unordered_target, unordered_scratch;
};

/* What is posted beside the opcode, all optional. */
struct extra {
	bool fence, quiet;
	uint64_t add;
};

void die(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* Opens the device (the first mlx5 one for NULL) and connects everything. `unordered` makes the unordered keys as well. */
void rig_open(struct rig *rig, const char *device, int gid_index, bool unordered);

/* Posts one request on an active end. `remote` may be NULL for a SEND. */
void post(struct end *end, enum ibv_wr_opcode opcode, const struct memory *local, const struct memory *remote, uint32_t length,
	  struct extra extra);
/* A receive request without a buffer: for messages that only tell something. */
void post_receive(struct end *end);
/* Waits for one successful completion. */
void completed(struct ibv_cq *cq, const char *what);

/* Waits until a byte has the value; false if it does not come within some seconds. */
bool sees(const volatile uint8_t *byte, uint8_t value);

/* Waits until nothing that was posted on the pair can still change memory: a message after all of it has been received, whose
 * completion comes after all earlier data, and the requests have completed. `quiet` requests need no completion of their own. */
void settle(struct rig *rig, int pair);

#endif
