tt.func public @barrier() {
  "gpu.barrier"() : () -> ()
  "ttg.local_barrier"() : () -> ()
  tt.return
}
