/* The doorbell of src/transport/shm/board.h: two peers publish something and ring; one rank checks
 * for it and sleeps. The model has every interleaving on a processor that may keep stores in a
 * buffer for any time (x86). Other processors reorder more, but acquire and release in the code
 * forbid that. The model has no timeout of the sleep, which would hide an error. A rank that sleeps
 * although no peer will wake it is an invalid end state, which spin reports.
 *
 * Peers leave out the fence as long as the sleeper makes a barrier before it sleeps; each of its
 * rounds may be with or without a barrier. WITHOUT_FENCE leaves out the fence in Board::ring(),
 * WITHOUT_BARRIER the barrier in Board::announce_sleep(), WITHOUT_LOOK the second check of the
 * sleeper, WITHOUT_CHECK the comparison of the futex, and WITHOUT_RESULT the ring of a sleep in
 * poll that the exchange in Board::ring() finds: each must make spin find a lost ring. */
#define PEERS 2
#define ROUNDS 2

byte published[PEERS]; /* memory, as other cores see it */
byte asleep = 0;       /* Doorbell::asleep: 0 awake, 1 in the futex, 2 in poll */
bool makes_barrier = false; /* Doorbell::makes_barrier */
bool in_futex = false; /* the kernel holds the rank */
bool event = false;    /* the eventfd of the rank has been written */

chan buffered[PEERS] = [ROUNDS] of { byte }; /* a peer's stores to its own line */

/* A core writes its buffer out in order, at any time. */
active [PEERS] proctype store_buffer() {
  byte value;
end:
  do
  :: atomic { nempty(buffered[_pid]); buffered[_pid]?<value>; published[_pid] = value;
              buffered[_pid]?value }
  od
}

proctype peer(byte me) {
  byte round = 1, was;
  bool fence;
  do
  :: round <= ROUNDS ->
     buffered[me]!round; /* line.sequence.store(round, release) */
     fence = !makes_barrier; /* may_sleep() */
     if
     :: fence
     :: !fence -> fence = (asleep != 0)
     fi;
     if
     :: !fence
     :: fence ->
#ifndef WITHOUT_FENCE
        empty(buffered[me]); /* atomic_thread_fence(seq_cst) */
#endif
        was = asleep;
        if
        :: was == 1 ->
           /* A locked instruction: it too waits for the buffer. */
           atomic { empty(buffered[me]); was = asleep; asleep = 0 };
           if
           :: was == 1 -> in_futex = false /* FUTEX_WAKE */
           :: else
#ifdef WITHOUT_RESULT
              -> was = 0
#endif
           fi
        :: else
        fi;
        if
        :: was == 2 -> event = true /* a write to the eventfd */
        :: else
        fi
     fi;
     round++
  :: else -> break
  od
}

#define there (published[0] >= round && published[1] >= round)

proctype sleeper() {
  byte round = 1, how;
  do
  :: round > ROUNDS -> break
  :: round <= ROUNDS && there -> round++
  :: round <= ROUNDS && !there ->
     if
     :: makes_barrier = true /* make_barrier(), at any time before */
     :: true
     fi;
     if
     :: how = 1
     :: how = 2
     fi;
     asleep = how; /* announce_sleep(): an exchange */
     if
     :: makes_barrier ->
        makes_barrier = false;
#ifndef WITHOUT_BARRIER
        empty(buffered[0]); /* membarrier(): each core has executed a fence, one after another */
        empty(buffered[1])
#endif
     :: else
     fi;
     if
#ifndef WITHOUT_LOOK
     :: there
     :: !there ->
#else
     :: true ->
#endif
        if
        :: how == 1 ->
           atomic { /* FUTEX_WAIT: the kernel compares and queues in one */
             if
#ifndef WITHOUT_CHECK
             :: asleep == 1 -> in_futex = true
             :: else
#else
             :: in_futex = true
#endif
             fi
           };
           !in_futex
        :: how == 2 -> event; event = false /* poll(), and a read of the eventfd */
        fi
     fi;
     asleep = 0 /* announce_awake() */
  od
}

init {
  atomic {
    byte i;
    for (i : 0 .. PEERS - 1) { run peer(i) };
    run sleeper()
  }
}
