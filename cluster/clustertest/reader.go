package clustertest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grapevine-epp/grapevine/cluster"
)

// Reader is a replica that reads engines according to its roles. The n-th batch of an engine is
// Batch(source, n). It shares a log "index" of Blocks and a gauge "load".
type Reader struct {
	*cluster.Node
	Load   *cluster.Gauge
	Loads  *Table
	Index  *cluster.Log
	Blocks *Blocks

	sources []string
	written atomic.Uint64
	stop    context.CancelFunc
	wg      sync.WaitGroup
}

// NewReader returns a replica that is not open, with the server's tuning.
func NewReader(self cluster.Member, bus cluster.Bus) *Reader {
	r := &Reader{
		Node: cluster.New(cluster.Options{
			Self: self, Bus: bus, Share: cluster.SharePartitioned, Tuning: cluster.Tuning{Loads: 2, AskTimeout: 3 * time.Second},
		}),
		Loads: &Table{of: map[string]map[string]string{}}, Blocks: NewBlocks(),
	}
	r.Load = r.Gauge("load", 1, r.Loads)
	r.Index = r.Log("index", 1, r.Blocks, cluster.LogOptions{Owned: true})
	return r
}

// Sources returns n names.
func Sources(n int) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("10.0.0.%d:8000/0", i+1))
	}
	return out
}

// Begin opens the replica and reads until End.
func (r *Reader) Begin(ctx context.Context, sources []string) error {
	if err := r.Open(ctx); err != nil {
		return err
	}
	r.sources = slices.Clone(sources)
	r.Index.SetSources(r.sources)
	run, stop := context.WithCancel(context.Background())
	r.stop = stop
	r.wg.Go(func() { r.read(run) })
	return nil
}

// End stops reading and closes the replica without leaving.
func (r *Reader) End() error {
	if r.stop == nil {
		return nil
	}
	r.stop()
	r.wg.Wait()
	return r.Close()
}

// Write sets the number of batches that every engine has written.
func (r *Reader) Write(n uint64) { r.written.Store(n) }

// read appends the engines' batches for the sources that this replica reads.
func (r *Reader) read(ctx context.Context) {
	t := time.NewTicker(5 * time.Millisecond)
	defer t.Stop()
	for {
		for _, s := range r.sources {
			reads := r.Blocks.Role(s) == cluster.RoleReader
			r.Index.Reading(s, reads)
			for seq := r.Index.Position(s).Next; reads && seq < r.written.Load(); seq++ {
				r.Index.Append(cluster.Delta{Source: s, Inc: 1, First: seq, Last: seq, Payload: Batch(s, seq)})
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// Known is a replica's state of a source.
type Known struct {
	At     cluster.Position
	Digest cluster.Digest
}

// Missing returns why this replica does not have exactly n batches of every source, or "".
func (r *Reader) Missing(n uint64) string {
	for _, s := range r.sources {
		k := Known{r.Index.Position(s), r.Blocks.Digest(s)}
		if why := k.Missing(s, n); why != "" {
			return r.Self().Name + ": " + why
		}
	}
	return ""
}

// Missing returns why k is not exactly n batches of source, or "".
func (k Known) Missing(source string, n uint64) string {
	if k.At.Next != n || k.At.Lost != 0 {
		return fmt.Sprintf("%s is at %+v, want %d", source, k.At, n)
	}
	if want := Truth(source, n); k.Digest != want {
		return fmt.Sprintf("%s holds %+v, not %+v", source, k.Digest, want)
	}
	return ""
}
