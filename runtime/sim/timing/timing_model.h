// The numbers of a machine that the clock needs. Times are in ns, rates in
// bytes (or operations) per ns, which is GB/s (or GFLOP/s).
#pragma once

namespace ditron::sim {

struct TimingModel {
  // Of a GPU.
  int sms = 0;
  double dot8 = 0, dot16 = 0, dot32 = 0; ///< Operations by operand width.
  double vector = 0, special = 0;        ///< Operations on elements.
  double hbm = 0, hbmSm = 0;             ///< Of all programs, of one.
  double cache = 0;                      ///< Bytes of the L2 cache.
  /// A launch computes so long at these rates, then at this part of them.
  double burst = 0, sustained = 1;
  /// Of each row of products between two points where a program communicates:
  /// its first loads, which nothing hides.
  double fill = 0;
  // Between the GPUs of a node.
  double link = 0;     ///< Each way, of one GPU.
  double linkPair = 0; ///< From one GPU to another; 0: all of `link`.
  double storeSm = 0, loadSm = 0;                      ///< Of one program.
  double storeShare = 1, loadShare = 1, copyShare = 1; ///< Of the link's rate.
  // Copy engine.
  double copySetup = 0, copyLeast = 0;
  double copyNext = 0; ///< The setup behind other work of the stream.
  double copyBusy = 1; ///< Of its rate, while its GPU computes products.
  // Between nodes, per GPU; nic = 0: there are none.
  double nic = 0, nicLatency = 0, nicPost = 0;
  // Latencies.
  double launch = 0;  ///< Of a kernel, to its first program.
  double peer = 0;    ///< From a store to a peer to who polls there.
  double local = 0;   ///< The same within the GPU.
  double fence = 0;   ///< Of all earlier stores, before a signal.
  double stream = 0;  ///< Of a stream: a signal that it writes or awaits.
  double barrier = 0; ///< Of a symmetric barrier, all have come.
};

} // namespace ditron::sim
