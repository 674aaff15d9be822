package translate

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/grapevine-epp/grapevine/events/decode"
	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/indexer/block"
)

var testSource = block.Source{Endpoint: 3, Rank: 1}

func newIndex() *indexer.Index {
	return indexer.New(indexer.Options{Hasher: testHasher()})
}

func testHasher() block.Hasher { return block.NewHasher(block.Seed{1, 2, 3}) }

// letters is a vocabulary in which token n spells n in letters, so that tokens
// have several lengths; ids from 1000 on are unknown, 999 is empty.
type letters struct{}

func (letters) AppendTokens(dst []byte, ids []uint32) ([]byte, bool) {
	start := len(dst)
	for _, id := range ids {
		switch {
		case id >= 1000:
			return dst[:start], false
		case id == 999:
		default:
			dst = append(dst, 't')
			dst = strconv.AppendUint(dst, uint64(id), 10)
		}
	}
	return dst, true
}

// rig is a translator with a real index behind it, and names for keys.
type rig struct {
	opt   Options
	tr    *Translator
	index *indexer.Index
	names map[block.Key]string
}

func newRig(opt Options) *rig {
	r := &rig{index: newIndex(), names: map[block.Key]string{}}
	opt.Source, opt.Index, opt.Hasher, opt.Model = testSource, r.index, testHasher(), "model"
	r.opt, r.tr = opt, New(opt)
	return r
}

func (r *rig) apply(events ...decode.Event) *block.Delta {
	d := new(block.Delta)
	r.tr.Translate(&decode.Batch{Events: events}, d)
	r.index.Apply(testSource, d)
	return d
}

func (r *rig) key(k block.Key) string {
	if r.names[k] == "" {
		r.names[k] = fmt.Sprintf("k%d", len(r.names)+1)
	}
	return r.names[k]
}

func (r *rig) print(d *block.Delta) string {
	var s strings.Builder
	for _, op := range d.Ops {
		switch op.Kind {
		case block.OpClear:
			s.WriteString("clear")
		case block.OpRemove, block.OpMove:
			fmt.Fprintf(&s, "%s %s group %d: %d", map[block.OpKind]string{block.OpRemove: "remove", block.OpMove: "move"}[op.Kind],
				op.Tier, op.Group, d.Hashes[op.First:op.First+op.N])
		case block.OpStore:
			fmt.Fprintf(&s, "store %s group %d below ", op.Tier, op.Group)
			if op.Root {
				fmt.Fprintf(&s, "root %s:", r.key(op.From))
			} else {
				fmt.Fprintf(&s, "%d (%s):", op.Parent, r.key(op.From))
			}
			for _, b := range d.Blocks[op.First : op.First+op.N] {
				fmt.Fprintf(&s, " %d=%s/%db/%dt", b.Hash, r.key(b.Key), b.Bytes, b.Tokens)
				if b.Flags&block.FlagNonCanonical != 0 {
					s.WriteString("/non-canonical")
				}
			}
		}
		s.WriteString("\n")
	}
	return s.String()
}

// TestTranslate runs the scripts of testdata/translate. A batch holds one
// event per line:
//
//	stored 1,2 parent=0 tokens=0-31 size=16 medium=CPU group=1 kind=mamba lora=x salt=s extra=0:key extra=1:image@3
//	removed 1,2 medium=CPU group=0
//	cleared
//
// Keys are named in the order in which they appear.
func TestTranslate(t *testing.T) {
	datadriven.Walk(t, "testdata/translate", func(t *testing.T, path string) {
		var r *rig
		datadriven.RunTest(t, path, func(t *testing.T, td *datadriven.TestData) string {
			switch td.Cmd {
			case "new":
				r = newRig(scriptOptions(t, td))
				return ""
			case "batch":
				return r.print(r.apply(scriptEvents(t, td)...))
			case "stats":
				return scriptStats(r.tr.Stats())
			}
			t.Fatalf("%s: unknown command %s", td.Pos, td.Cmd)
			return ""
		})
	})
}

func scriptOptions(t *testing.T, td *datadriven.TestData) Options {
	o := Options{Unit: 1}
	if td.HasArg("vocabulary") {
		o.Vocabulary = letters{}
	}
	if td.HasArg("canonical") {
		// Blocks whose first token is odd stand for non-canonical ones.
		o.Canonical = func(_ []byte, ids []uint32, _ []byte) bool { return ids[0]%2 == 0 }
	}
	o.SharedRemote = td.HasArg("shared-remote")
	td.MaybeScanArgs(t, "unit", &o.Unit)
	td.MaybeScanArgs(t, "park", &o.ParkBlocks)
	return o
}

func scriptStats(s Stats) string {
	out := fmt.Sprintf("stored %d removed %d moved %d clears %d parked %d attached %d lost %d\n",
		s.Stored, s.Removed, s.Moved, s.Clears, s.Parked, s.Attached, s.Lost)
	for i, n := range s.Skipped {
		if n > 0 {
			out += fmt.Sprintf("skipped %s %d\n", Skip(i), n)
		}
	}
	return out
}

func scriptEvents(t *testing.T, td *datadriven.TestData) []decode.Event {
	var out []decode.Event
	for _, line := range strings.Split(td.Input, "\n") {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		e := decode.Event{Group: decode.NoGroup}
		switch words[0] {
		case "cleared":
			e.Kind = decode.AllBlocksCleared
		case "stored":
			e.Kind = decode.BlockStored
		case "removed":
			e.Kind = decode.BlockRemoved
		default:
			td.Fatalf(t, "unknown event %q", words[0])
		}
		for _, w := range words[1:] {
			scriptField(&e, w)
		}
		out = append(out, e)
	}
	return out
}

func scriptField(e *decode.Event, word string) {
	name, value, named := strings.Cut(word, "=")
	if !named {
		for _, n := range scriptNumbers(word) {
			e.Hashes = append(e.Hashes, block.EngineHash(n))
		}
		return
	}
	n, _ := strconv.ParseUint(value, 10, 64)
	switch name {
	case "parent":
		e.HasParent, e.Parent = true, block.EngineHash(n)
	case "tokens":
		e.Tokens = scriptNumbers(value)
	case "size":
		e.BlockSize = uint32(n)
	case "group":
		e.Group = int32(n)
	case "lora_id":
		e.HasLoraID, e.LoraID = true, int64(n)
	case "medium":
		e.Medium = []byte(value)
	case "kind":
		e.SpecKind = []byte(value)
	case "lora":
		e.LoraName = []byte(value)
	case "salt":
		e.CacheSalt = []byte(value)
	case "locality":
		e.Locality = []byte(value)
	case "ownership":
		e.Ownership = []byte(value)
	case "extra":
		block, key, _ := strings.Cut(value, ":")
		i, _ := strconv.Atoi(block)
		k := decode.ExtraKey{Block: uint32(i), Value: []byte(key)}
		if id, offset, ok := strings.Cut(key, "@"); ok {
			k.Kind, k.Value = decode.ExtraPair, []byte(id)
			k.Offset, _ = strconv.ParseInt(offset, 10, 64)
		}
		e.Extra = append(e.Extra, k)
	}
}

// scriptNumbers reads "1,2,10-12".
func scriptNumbers(s string) []uint32 {
	var out []uint32
	for _, part := range strings.Split(s, ",") {
		from, to, isRange := strings.Cut(part, "-")
		a, _ := strconv.ParseUint(from, 10, 32)
		b := a
		if isRange {
			b, _ = strconv.ParseUint(to, 10, 32)
		}
		for ; a <= b; a++ {
			out = append(out, uint32(a))
		}
	}
	return out
}
