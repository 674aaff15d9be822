package translate

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/grapevine-epp/grapevine/events/decode"
	"github.com/grapevine-epp/grapevine/events/eventtest/pool"
	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/indexer/wire"
)

// padToken replaces the tokens of a medium in events.
const padToken = 900

// picture is a medium with the engine's name and number of tokens.
type picture struct {
	name   string
	tokens int
}

// part is a part of a prompt: words, or a medium.
type part struct {
	words  []uint32
	medium int // number + 1, 0 for words
}

// album is the pool's list of media: its tokens encode which medium each belongs to and where.
type album []picture

const firstPad = 1 << 20

// tokens returns a prompt as the pool hashes it; text returns it as a request has it.
func (a album) tokens(prompt []part) (ids []uint32) {
	for _, p := range prompt {
		ids = append(ids, p.words...)
		if p.medium > 0 {
			for i := range a[p.medium-1].tokens {
				ids = append(ids, firstPad+uint32(p.medium-1)<<10+uint32(i))
			}
		}
	}
	return ids
}

func (a album) text(prompt []part) (text []byte) {
	for _, p := range prompt {
		text, _ = letters{}.AppendTokens(text, p.words)
		if p.medium > 0 {
			text = block.AppendMedium(text, []byte(a[p.medium-1].name))
		}
	}
	return text
}

// published returns an event of the pool as an engine publishes it. Media are runs of one token,
// and extra keys name each medium and its start. ahead is the number of tokens after each block
// that are named too.
func (a album) published(e decode.Event) decode.Event {
	ids := append([]uint32(nil), e.Tokens...)
	for i, id := range ids {
		if id < firstPad {
			continue
		}
		ids[i] = padToken
		of, at, in := a[(id-firstPad)>>10], int64((id-firstPad)&1023), i%int(e.BlockSize)
		if at == 0 || in == 0 { // its first token in the block
			e.Extra = append(e.Extra, decode.ExtraKey{Block: uint32(i / int(e.BlockSize)), Kind: decode.ExtraPair, Value: []byte(of.name), Offset: int64(in) - at})
		}
	}
	e.Tokens = ids
	return e
}

// TestMediaLaw: prompts with media are matched beyond the media by their names, for any number of
// tokens per medium, and a medium is never taken for another.
func TestMediaLaw(t *testing.T) {
	past := 0
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 9))
		var all album
		for i := range 8 {
			all = append(all, picture{fmt.Sprint("picture ", i), 1 + rng.IntN([]int{3, 16, 200}[i%3])})
		}
		p, r := pool.New(60+rng.IntN(200)), newRig(Options{Vocabulary: letters{}})
		copied, other := newIndex(), block.Source{Endpoint: 8}
		root := testHasher().Root(block.Scope{Space: block.SpaceText, Model: "model"})
		var prompts [][]part
		for op := range 60 {
			var prompt []part
			if len(prompts) > 0 && rng.IntN(4) > 0 {
				old := prompts[rng.IntN(len(prompts))]
				prompt = append(prompt, old[:1+rng.IntN(len(old))]...)
			}
			for range 1 + rng.IntN(4) {
				if rng.IntN(3) == 0 {
					prompt = append(prompt, part{medium: 1 + rng.IntN(len(all))})
					continue
				}
				words := make([]uint32, 1+rng.IntN(30))
				for i := range words {
					words[i] = rng.Uint32N(5)
				}
				prompt = append(prompt, part{words: words})
			}
			prompt = append(prompt, part{words: []uint32{7}})
			if prompts = append(prompts, prompt); len(prompts) > 20 {
				prompts = prompts[1:]
			}
			p.Run(all.tokens(prompt), false, rng.IntN(8) == 0)
			var events []decode.Event
			for _, e := range p.Take() {
				events = append(events, all.published(e))
			}
			d := r.apply(events...)
			var again block.Delta
			if err := wire.DecodeDelta(wire.AppendDelta(nil, d), &again); err != nil {
				t.Fatal(err)
			}
			copied.Apply(other, &again)
			probe := prompts[rng.IntN(len(prompts))]
			q := block.Query{Root: root, Bytes: all.text(probe)}
			want := p.Hit(all.tokens(probe)) * pool.Block
			for _, x := range []struct {
				*indexer.Index
				id block.EndpointID
			}{{r.index, testSource.Endpoint}, {copied, other.Endpoint}} {
				var runs [1]block.Run
				x.Match(q, []block.EndpointID{x.id}, runs[:])
				got := min(int(runs[0].Total()), (len(all.tokens(probe))-1)/pool.Block*pool.Block)
				if got != want {
					t.Fatalf("operation %d: %d tokens predicted, %d there", op, got, want)
				}
				if ends := x.BlockEnds(q, runs[0], nil); len(ends) < int(runs[0].Blocks) {
					t.Fatalf("operation %d: %d ends of %d blocks", op, len(ends), runs[0].Blocks)
				}
				if first := mediumAt(probe); first >= 0 && want > first {
					past++
				}
			}
		}
	})
	if past == 0 {
		t.Error("no prompt was followed past a medium")
	}
	t.Logf("%d matches went past a medium", past)
}

// mediumAt returns the position of a prompt's first medium, in tokens, or -1.
func mediumAt(prompt []part) int {
	at := 0
	for _, p := range prompt {
		if p.medium > 0 {
			return at
		}
		at += len(p.words)
	}
	return -1
}

// TestMediaAhead: if hashes cover a token after each block, a medium that begins there is part of
// the block's text.
func TestMediaAhead(t *testing.T) {
	r := newRig(Options{Vocabulary: letters{}})
	pads := []uint32{padToken, padToken, padToken, padToken, padToken, padToken}
	tokens := append(append([]uint32{1, 2, 3, 4}, pads...), 5, 6)
	picture := func(i int, at int64) decode.ExtraKey {
		return decode.ExtraKey{Block: uint32(i), Kind: decode.ExtraPair, Value: []byte("cat"), Offset: at}
	}
	r.tr.opt.Unit = 1
	r.apply(decode.Event{Kind: decode.BlockStored, Group: decode.NoGroup, BlockSize: 4, Hashes: []block.EngineHash{1, 2, 3},
		Tokens: tokens, Lookahead: []uint32{padToken, padToken, 7}, Extra: []decode.ExtraKey{picture(0, 4), picture(1, 0), picture(2, -4)}})
	root := testHasher().Root(block.Scope{Space: block.SpaceText, Model: "model"})
	tokensOf := func(name, behind string) int32 {
		text := append(block.AppendMedium([]byte("t1t2t3t4"), []byte(name)), behind...)
		var runs [1]block.Run
		r.index.Match(block.Query{Root: root, Bytes: text}, []block.EndpointID{testSource.Endpoint}, runs[:])
		return runs[0].Total()
	}
	for _, c := range []struct {
		name, behind string
		want         int32
	}{{"cat", "t5t6t7t8", 12}, {"cat", "t5t6t8", 8}, {"dog", "t5t6t7t8", 0}} {
		if got := tokensOf(c.name, c.behind); got != c.want {
			t.Errorf("%s, then %s: %d tokens, not %d", c.name, c.behind, got, c.want)
		}
	}
}

// TestMediaReportsAreBounded: each name of a medium is reported at intervals, and the number of remembered names
// is bounded.
func TestMediaReportsAreBounded(t *testing.T) {
	told := map[string]int{}
	r := newRig(Options{Vocabulary: letters{}, Unit: 1, Medium: func(id []byte) { told[string(id)]++ }})
	store := func(i int, name string) {
		r.apply(decode.Event{Kind: decode.BlockStored, Group: decode.NoGroup, BlockSize: 1, Hashes: []block.EngineHash{block.EngineHash(i + 1)},
			Tokens: []uint32{padToken}, Extra: []decode.ExtraKey{{Kind: decode.ExtraPair, Value: []byte(name)}}})
	}
	for i := range 10 {
		store(i, "same")
	}
	store(10, strings.Repeat("x", 1<<20))
	for i := range 10_000 {
		store(11+i, fmt.Sprint(i))
	}
	if told["same"] != 1 || len(told) != 10_002 || len(r.tr.media) != mediaKept {
		t.Errorf("%d reports of %d names, %d remembered", told["same"], len(told), len(r.tr.media))
	}
	for _, m := range r.tr.media {
		if cap(m) > maxMediumName {
			t.Errorf("%d bytes of a name remembered", cap(m))
		}
	}
}
