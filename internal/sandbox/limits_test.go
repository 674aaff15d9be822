package sandbox

import (
	"fmt"
	"testing"

	"github.com/tetratelabs/wazero"

	"github.com/grapevine-epp/grapevine/internal/testkit/wasmkit"
)

// BenchmarkLimits measures a call's code alone, without facts: without a limit, with the step counter of
// this package, and with the runtime's own interruption by a context, which checks every iteration of a
// loop outside of the module.
func BenchmarkLimits(b *testing.B) {
	plain := wasmkit.Module(wasmkit.Options{Facts: []string{oneFact}, Body: wasmkit.Copy(false, 1)})
	counted, err := meter(plain, 1<<62)
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name      string
		code      []byte
		interrupt bool
	}{{"none", plain, false}, {"steps", counted.code, false}, {"context", plain, true}} {
		for _, n := range []uint64{8, 100, 1000} {
			b.Run(fmt.Sprintf("%s/endpoints=%d", c.name, n), func(b *testing.B) {
				r := wazero.NewRuntimeWithConfig(b.Context(), wazero.NewRuntimeConfig().WithCloseOnContextDone(c.interrupt))
				defer func() { _ = r.Close(b.Context()) }()
				m, err := r.Instantiate(b.Context(), c.code)
				if err != nil {
					b.Fatal(err)
				}
				score := m.ExportedFunction(fnScore)
				var stack [4]uint64
				b.ReportAllocs()
				for b.Loop() {
					stack = [4]uint64{64 << 10, 64 << 10, n, 128 << 10}
					if err := score.CallWithStack(b.Context(), stack[:]); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkFaults measures how long a call without an end lasts, with the default limits of plugins.
func BenchmarkFaults(b *testing.B) {
	for name, body := range map[string][]byte{
		"loop": wasmkit.Spin, "recursion": wasmkit.Recurse, "forks": wasmkit.Fork, "fill": wasmkit.Fill, "growth": wasmkit.Grow,
	} {
		b.Run(name, func(b *testing.B) {
			o := options(body)
			o.Steps, o.Memory = 10_000_000, 32<<20
			m := open(b, o)
			for b.Loop() {
				m.row.Store(0)
				if reason, _ := (numbers{1}).score(m); reason != Steps {
					b.Fatal(reason)
				}
			}
		})
	}
}
