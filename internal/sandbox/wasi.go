package sandbox

import (
	"context"
	"slices"

	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/sys"
)

// wasiName is the module of the system interface that compilers import.
const wasiName = "wasi_snapshot_preview1"

// Error numbers of the interface.
const (
	wasiOK    = 0
	wasiBadF  = 8
	wasiFault = 21
	wasiNoSys = 52
)

// wasiTime is the time of every clock, in nanoseconds. Some runtimes do not start at 0.
const wasiTime = 1_000_000_000

// maxOutput limits the output of an instance that is kept for messages, in bytes.
const maxOutput = 1024

// outputKey finds the output of an instance in the context of a call.
type outputKey struct{}

// wasiFunction returns a function of the system interface. These functions suffice for the start of a
// language runtime: no arguments, no environment, no files, a clock that stands still and zeros as random
// numbers. Output goes to the instance's message.
func wasiFunction(name string, params, results []api.ValueType) api.GoModuleFunc {
	f := wasiFunctions[name]
	if !isI32(results, 1) || len(params) < f.params {
		f = wasiStub{}
	}
	return func(ctx context.Context, m api.Module, stack []uint64) {
		if name == "proc_exit" {
			panic(sys.NewExitError(uint32(stack[0])))
		}
		code := uint64(wasiNoSys)
		if f.call != nil {
			code = f.call(ctx, m, stack)
		}
		if len(results) > 0 {
			stack[0] = code
		}
	}
}

// wasiStub is one function with its number of parameters. It returns an error number.
type wasiStub struct {
	params int
	call   func(ctx context.Context, m api.Module, p []uint64) uint64
}

var wasiFunctions = map[string]wasiStub{
	"args_get":          {2, done},
	"args_sizes_get":    {2, noSizes},
	"environ_get":       {2, done},
	"environ_sizes_get": {2, noSizes},
	"sched_yield":       {0, done},
	"poll_oneoff":       {4, done},
	"clock_time_get":    {3, func(_ context.Context, m api.Module, p []uint64) uint64 { return put64(m, p[2], wasiTime) }},
	"clock_res_get":     {2, func(_ context.Context, m api.Module, p []uint64) uint64 { return put64(m, p[1], 1) }},
	"fd_prestat_get":    {2, func(context.Context, api.Module, []uint64) uint64 { return wasiBadF }},
	"fd_write":          {4, write},
	"random_get":        {2, zeros},
}

func done(context.Context, api.Module, []uint64) uint64 { return wasiOK }

func noSizes(_ context.Context, m api.Module, p []uint64) uint64 {
	if !m.Memory().WriteUint32Le(uint32(p[0]), 0) || !m.Memory().WriteUint32Le(uint32(p[1]), 0) {
		return wasiFault
	}
	return wasiOK
}

func put64(m api.Module, at, value uint64) uint64 {
	if !m.Memory().WriteUint64Le(uint32(at), value) {
		return wasiFault
	}
	return wasiOK
}

func zeros(_ context.Context, m api.Module, p []uint64) uint64 {
	spend(m, p[1]/16)
	area, ok := m.Memory().Read(uint32(p[0]), uint32(p[1]))
	if !ok {
		return wasiFault
	}
	clear(area)
	return wasiOK
}

// write accepts all output.
func write(ctx context.Context, m api.Module, p []uint64) uint64 {
	said, _ := ctx.Value(outputKey{}).(*[]byte)
	spend(m, uint64(uint32(p[2])))
	mem, total := m.Memory(), uint32(0)
	for i := range uint32(p[2]) {
		at, ok := mem.ReadUint32Le(uint32(p[1]) + 8*i)
		size, ok2 := mem.ReadUint32Le(uint32(p[1]) + 8*i + 4)
		data, ok3 := mem.Read(at, size)
		if !ok || !ok2 || !ok3 {
			return wasiFault
		}
		total += size
		if said != nil {
			*said = append(*said, data[:min(len(data), maxOutput-len(*said))]...)
		}
	}
	if !mem.WriteUint32Le(uint32(p[3]), total) {
		return wasiFault
	}
	return wasiOK
}

// spend charges steps for the work of a function, and ends the call if too few are left.
func spend(m api.Module, steps uint64) {
	g, ok := m.ExportedGlobal(stepsExport).(api.MutableGlobal)
	if !ok {
		return
	}
	left := int64(g.Get()) - int64(min(steps, 1<<40))
	if g.Set(uint64(left)); left < 0 {
		panic(sys.NewExitError(0))
	}
}

// printable returns the first line of output with bytes that are safe in logs.
func printable(said []byte) string {
	if i := slices.Index(said, '\n'); i >= 0 {
		said = said[:i]
	}
	out := slices.Clone(said[:min(len(said), 200)])
	for i, b := range out {
		if b < ' ' || b > '~' {
			out[i] = '?'
		}
	}
	return string(out)
}
