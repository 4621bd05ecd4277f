/* The lock of src/base/biased_lock.h: three threads take it, of which the first has the bias at the
 * beginning. The model has every interleaving on a processor that may keep stores in a buffer for
 * any time (x86). Two threads that hold the lock at the same time violate the assertion.
 *
 * WITHOUT_BARRIER leaves out the membarrier of the other threads, WITHOUT_LOOK their look at the
 * word of the thread with the bias, WITHOUT_RETURN the look of that thread at the word of the
 * other threads, and WITHOUT_AGAIN its second look at the bias: each must make spin find the
 * violation. */
#define THREADS 3
#define TRIES 2
#define MOST_AGAINST_BIAS 1

#define HELD 0
#define HELD_BY_BIAS 1
#define BIASED 2 /* 1: to thread 0; 0: the bias has ended */
byte memory[3]; /* as other cores see it */
chan buffered[THREADS] = [8] of { byte, byte };
byte inside = 0, against_bias = 0;

/* A core writes its buffer out in order, at any time. */
active [THREADS] proctype store_buffer() {
  byte word, value;
end:
  do
  :: atomic { buffered[_pid]?word, value; memory[word] = value }
  od
}

#define store(word, value) buffered[me]!word, value

/* A core sees its own stores before the other cores do. */
inline load(word, into) {
  d_step {
    into = memory[word];
    left = len(buffered[me]);
    do
    :: left > 0 ->
       buffered[me]?at, value; buffered[me]!at, value;
       if
       :: at == word -> into = value
       :: else
       fi;
       left--
    :: else -> break
    od;
    left = 0; at = 0; value = 0
  }
}

inline use() {
  inside++;
  assert(inside == 1);
  inside--
}

inline exchange() {
  atomic { empty(buffered[me]); seen = memory[HELD]; memory[HELD] = 1 };
  if
  :: seen -> skip
  :: else ->
     load(BIASED, seen);
     if
     :: !seen -> use()
     :: else ->
        if
        :: against_bias == MOST_AGAINST_BIAS -> store(BIASED, 0)
        :: else
        fi;
#ifndef WITHOUT_BARRIER
        empty(buffered[me]); /* this core executes a fence, then each other core */
        empty(buffered[0]);
        empty(buffered[1]);
        empty(buffered[2]);
#endif
#ifndef WITHOUT_LOOK
        load(HELD_BY_BIAS, seen);
#else
        seen = 0;
#endif
        if
        :: seen -> store(BIASED, 1)
        :: else -> against_bias++; use()
        fi
     fi;
     store(HELD, 0)
  fi
}

proctype thread(byte me) {
  byte tries = 0, seen, left, at, value;
  do
  :: tries == TRIES -> break
  :: else ->
     load(BIASED, seen);
     if
     :: seen && me == 0 ->
        store(HELD_BY_BIAS, 1);
#ifndef WITHOUT_AGAIN
        load(BIASED, seen);
#endif
        if
        :: seen ->
#ifndef WITHOUT_RETURN
           load(HELD, seen);
#else
           seen = 0;
#endif
           if
           :: seen -> skip
           :: else -> use()
           fi;
           store(HELD_BY_BIAS, 0)
        :: else ->
           store(HELD_BY_BIAS, 0);
           exchange()
        fi
     :: else -> exchange()
     fi;
     seen = 0;
     tries++
  od
}

init {
  atomic {
    memory[BIASED] = 1;
    run thread(0);
    run thread(1);
    run thread(2)
  }
}
