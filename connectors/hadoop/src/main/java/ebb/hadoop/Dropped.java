package ebb.hadoop;

import java.lang.ref.Cleaner;

/**
 * Gives back what the library keeps for objects that a program dropped and never closed.
 *
 * <p>Programs do that: a {@code FileContext} cannot be closed at all, and daemons make one for each job. One thread
 * serves all of them.
 */
final class Dropped {
  private static final Cleaner CLEANER = Cleaner.create();

  private Dropped() {}

  /**
   * Runs an action when an object is collected, or before, by {@link Cleaner.Cleanable#clean}.
   *
   * @param action must not know the object, which would never be collected then
   */
  static Cleaner.Cleanable watch(Object object, Runnable action) {
    return CLEANER.register(object, action);
  }
}
