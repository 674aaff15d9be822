package sandbox

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/grapevine-epp/grapevine/internal/testkit/wasmkit"
)

// This file has the alternative to this package that was measured and not chosen: a process on the
// same machine that is called by gRPC over a Unix socket. It gets the same numbers and returns the same
// scores. See docs/adr/0051-plugins-in-webassembly.md.

const envRemote = "GRAPEVINE_REMOTE_PLUGIN"

// raw passes bytes through: an encoding costs nothing.
type raw struct{}

func (raw) Name() string                       { return "raw" }
func (raw) Marshal(v any) ([]byte, error)      { return *v.(*[]byte), nil }
func (raw) Unmarshal(data []byte, v any) error { *v.(*[]byte) = slices.Clone(data); return nil }

// remoteAnswer returns the first of the four numbers of each endpoint, or this process's seconds of
// processor time if there are none.
func remoteAnswer(in []byte) []byte {
	if len(in) == 0 {
		return binary.LittleEndian.AppendUint64(nil, math.Float64bits(processorTime().Seconds()))
	}
	out := make([]byte, 0, len(in)/4)
	for k := 0; k < len(in); k += 32 {
		out = append(out, in[k:k+8]...)
	}
	return out
}

func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

var remoteService = grpc.ServiceDesc{
	ServiceName: "plugin", HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "Score", Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		var in []byte
		if err := decode(&in); err != nil {
			return nil, err
		}
		out := remoteAnswer(in)
		return &out, nil
	}}},
	Streams: []grpc.StreamDesc{{StreamName: "Scores", ServerStreams: true, ClientStreams: true, Handler: func(_ any, s grpc.ServerStream) error {
		for {
			var in []byte
			if err := s.RecvMsg(&in); err != nil {
				return nil
			}
			out := remoteAnswer(in)
			if err := s.SendMsg(&out); err != nil {
				return err
			}
		}
	}}},
}

func TestMain(m *testing.M) {
	if path := os.Getenv(envRemote); path != "" {
		l, err := net.Listen("unix", path)
		if err != nil {
			panic(err)
		}
		s := grpc.NewServer(grpc.ForceServerCodec(raw{}))
		s.RegisterService(&remoteService, nil)
		panic(s.Serve(l))
	}
	os.Exit(m.Run())
}

// remote starts a process and connects to it.
func remote(tb testing.TB) *grpc.ClientConn {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "s")
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), envRemote+"="+path)
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	c, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{}), grpc.WaitForReady(true)))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

func unary(tb testing.TB, c *grpc.ClientConn, in []byte) []byte {
	var out []byte
	if err := c.Invoke(tb.Context(), "/plugin/Score", &in, &out); err != nil {
		tb.Error(err)
	}
	return out
}

// four is a source whose endpoints have four numbers each.
type four []float64

func (four) WriteRequest(*Writer) {}
func (s four) WriteEndpoint(k int, w *Writer) {
	for range 4 {
		w.Number(s[k])
	}
}

func (s four) bytes() []byte {
	out := make([]byte, 0, 32*len(s))
	for _, v := range s {
		for range 4 {
			out = binary.LittleEndian.AppendUint64(out, math.Float64bits(v))
		}
	}
	return out
}

// BenchmarkCandidates compares a module with a process: latency, and processor time of both processes
// for one decision. Eight callers run at once.
func BenchmarkCandidates(b *testing.B) {
	c := remote(b)
	o := options(wasmkit.Copy(false, 4))
	for _, n := range []int{8, 100, 1000} {
		in := make(four, n)
		m := open(b, o)
		m.SetShape(0, 4)
		measure(b, c, fmt.Sprintf("wasm/endpoints=%d", n), func() func() {
			scores := make([]float64, n)
			return func() {
				if reason := m.Score(t0, in, scores); reason != OK && reason != Busy {
					b.Error(reason)
				}
			}
		})
		measure(b, c, fmt.Sprintf("grpc-unary/endpoints=%d", n), func() func() { return func() { unary(b, c, in.bytes()) } })
		measure(b, c, fmt.Sprintf("grpc-stream/endpoints=%d", n), func() func() {
			s, err := c.NewStream(b.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/plugin/Scores")
			if err != nil {
				b.Error(err)
			}
			return func() {
				data := in.bytes()
				if err := s.SendMsg(&data); err != nil {
					b.Error(err)
				}
				if err := s.RecvMsg(&data); err != nil {
					b.Error(err)
				}
			}
		})
	}
}

// measure runs what caller returns, for each caller.
func measure(b *testing.B, c *grpc.ClientConn, name string, caller func() func()) {
	b.Run(name, func(b *testing.B) {
		var mu sync.Mutex
		var all []time.Duration
		used := func() float64 {
			return processorTime().Seconds() + math.Float64frombits(binary.LittleEndian.Uint64(unary(b, c, []byte{})))
		}
		b.SetParallelism(4)
		before := used()
		b.RunParallel(func(pb *testing.PB) {
			call := caller()
			var own []time.Duration
			for pb.Next() {
				start := time.Now()
				call()
				own = append(own, time.Since(start))
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, own...)
		})
		spent := used() - before
		slices.Sort(all)
		b.ReportMetric(float64(all[len(all)/2].Nanoseconds())/1e3, "p50-µs")
		b.ReportMetric(float64(all[len(all)*99/100].Nanoseconds())/1e3, "p99-µs")
		b.ReportMetric(spent*1e6/float64(len(all)), "cpu-µs/op")
	})
}

// TestRemote: the alternative computes the same scores.
func TestRemote(t *testing.T) {
	in := four{.25, .5}
	m := open(t, options(wasmkit.Copy(false, 4)))
	m.SetShape(0, 4)
	scores := make([]float64, 2)
	m.Score(t0, in, scores)
	out := unary(t, remote(t), in.bytes())
	for k, want := range scores {
		if got := math.Float64frombits(binary.LittleEndian.Uint64(out[8*k:])); got != want {
			t.Errorf("score %d: %v, want %v", k, got, want)
		}
	}
}
