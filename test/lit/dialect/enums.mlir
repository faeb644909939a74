// The stand-alone form of every enumeration, and that every case is known.
// RUN: ditron-opt %s | ditron-opt | filecheck %s

// CHECK-LABEL: @every_case
func.func @every_case() attributes {
  // CHECK-SAME: cmp = [#ditron.cmp<eq>, #ditron.cmp<ne>, #ditron.cmp<gt>, #ditron.cmp<ge>, #ditron.cmp<lt>, #ditron.cmp<le>]
  cmp = [#ditron.cmp<eq>, #ditron.cmp<ne>, #ditron.cmp<gt>, #ditron.cmp<ge>, #ditron.cmp<lt>, #ditron.cmp<le>],
  // CHECK-SAME: granularity = [#ditron.granularity<thread>, #ditron.granularity<warp>, #ditron.granularity<block>]
  granularity = [#ditron.granularity<thread>, #ditron.granularity<warp>, #ditron.granularity<block>],
  // CHECK-SAME: protocol = [#ditron.protocol<simple>, #ditron.protocol<ll>, #ditron.protocol<ll128>]
  protocol = [#ditron.protocol<simple>, #ditron.protocol<ll>, #ditron.protocol<ll128>],
  // CHECK-SAME: reduce_op = [#ditron.reduce_op<add>, #ditron.reduce_op<min>, #ditron.reduce_op<max>]
  reduce_op = [#ditron.reduce_op<add>, #ditron.reduce_op<min>, #ditron.reduce_op<max>],
  // CHECK-SAME: scope = [#ditron.scope<gpu>, #ditron.scope<node>, #ditron.scope<world>]
  scope = [#ditron.scope<gpu>, #ditron.scope<node>, #ditron.scope<world>],
  // CHECK-SAME: semantic = [#ditron.semantic<relaxed>, #ditron.semantic<acquire>, #ditron.semantic<release>, #ditron.semantic<acq_rel>]
  semantic = [#ditron.semantic<relaxed>, #ditron.semantic<acquire>, #ditron.semantic<release>, #ditron.semantic<acq_rel>],
  // CHECK-SAME: shfl_mode = [#ditron.shfl_mode<idx>, #ditron.shfl_mode<up>, #ditron.shfl_mode<down>, #ditron.shfl_mode<bfly>]
  shfl_mode = [#ditron.shfl_mode<idx>, #ditron.shfl_mode<up>, #ditron.shfl_mode<down>, #ditron.shfl_mode<bfly>],
  // CHECK-SAME: signal_op = [#ditron.signal_op<set>, #ditron.signal_op<add>]
  signal_op = [#ditron.signal_op<set>, #ditron.signal_op<add>],
  // CHECK-SAME: swizzle_mode = [#ditron.swizzle_mode<gather>, #ditron.swizzle_mode<scatter>]
  swizzle_mode = [#ditron.swizzle_mode<gather>, #ditron.swizzle_mode<scatter>],
  // CHECK-SAME: team = [#ditron.team<group>, #ditron.team<node>, #ditron.team<world>]
  team = [#ditron.team<group>, #ditron.team<node>, #ditron.team<world>]
} {
  return
}
