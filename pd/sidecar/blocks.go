package sidecar

import (
	"context"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
	"github.com/grapevine-epp/grapevine/pd/sidecar/internal/vitals"
)

// A KV transfer that names fewer blocks than the prompt has ends vLLM's decode engine by an assertion. The
// largest group of blocks is compared with the tokens of the prompt and the block size on the prefill engine's
// metrics page. Nothing else than these proves that blocks are missing:
//
//   - The model has one group, of full attention: no sliding window, no Mamba.
//   - Or the engine has named all blocks of a prompt of as many tokens before. This holds for models with
//     several groups, or with a window.
//
// Some releases transfer full blocks only. The last, partial block is required once the engine has named one.
// With context parallelism (dcp_size), blocks are not comparable.

// cacheInfo is the metric with vLLM's cache configuration as labels.
const cacheInfo = "vllm:cache_config_info"

// processStart is the metric that changes when an engine restarts.
const processStart = "process_start_time_seconds"

const (
	pageLimit = time.Second // for the metrics page
	pageAgain = time.Minute // until an unreadable page is read again
	maxSizes  = 1024        // prefill engines whose block sizes are kept
	// maxUnproven is how many transfers of an engine are rejected while none has had the blocks that the page
	// lets expect. The page is then wrong, or all transfers are.
	maxUnproven = 3
)

// blockSizes has the evidence on the blocks of each prefill engine, by host and port. The zero value is ready,
// and safe for concurrent use.
type blockSizes struct {
	mu sync.Mutex
	at map[string]*engineBlocks
}

// engineBlocks is the evidence on one prefill engine.
type engineBlocks struct {
	read     time.Time // when the page was read
	identity string    // of the engine's process and configuration; "": unknown
	size     int       // tokens per block; 0: unknown
	simple   bool      // one group of full attention, if transfers have one
	proven   int       // tokens of the longest prompt of which all blocks were named
	partial  bool      // the engine names partial blocks
	rejected int       // while proven is 0
}

// tooFew reports whether a transfer from the engine at base names fewer blocks than its prompt of tokens has.
func (b *blockSizes) tooFew(ctx context.Context, v vitals.Reader, base *url.URL, groups []int, tokens int, now time.Time) bool {
	b.mu.Lock()
	e := b.at[base.Host]
	unread := e == nil || e.size == 0 && now.Sub(e.read) > pageAgain
	b.mu.Unlock()
	if unread {
		b.update(ctx, v, base, now)
	}
	if !b.judge(base.Host, groups, tokens) {
		return false
	}
	b.update(ctx, v, base, now) // another engine may be there
	b.mu.Lock()
	defer b.mu.Unlock()
	e = b.at[base.Host]
	if e == nil || !e.lacks(groups, tokens) {
		return false
	}
	if e.proven == 0 {
		e.rejected++
	}
	return e.proven > 0 || e.rejected <= maxUnproven
}

// judge reports whether a transfer lacks blocks. It learns from complete transfers.
func (b *blockSizes) judge(engine string, groups []int, tokens int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.at[engine]
	if e == nil || e.size == 0 {
		return false
	}
	if e.lacks(groups, tokens) {
		return true
	}
	named := largest(groups)
	if full := tokens / e.size; named == full || named == full+1 && tokens%e.size > 0 {
		e.proven, e.partial = max(e.proven, tokens), e.partial || named > full
	}
	return false
}

// lacks reports whether the groups of a transfer prove that blocks of a prompt are missing.
func (e *engineBlocks) lacks(groups []int, tokens int) bool {
	if tokens > e.proven && !(e.simple && len(groups) == 1) || e.size == 0 {
		return false
	}
	need := tokens / e.size
	if e.partial && tokens%e.size > 0 {
		need++
	}
	return largest(groups) < need
}

// update reads the metrics page of an engine. If another engine is there, it discards the evidence.
func (b *blockSizes) update(ctx context.Context, v vitals.Reader, base *url.URL, now time.Time) {
	lines := v.Samples(ctx, base, pageLimit, cacheInfo, processStart)
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.at[base.Host]
	if e == nil {
		if len(b.at) >= maxSizes {
			b.at = nil
		}
		if b.at == nil {
			b.at = map[string]*engineBlocks{}
		}
		e = &engineBlocks{}
		b.at[base.Host] = e
	}
	e.read = now
	info, ok := lines[cacheInfo]
	if identity := info + lines[processStart]; ok && identity != e.identity {
		size, _ := strconv.Atoi(vitals.Label(info, "block_size")) // 0: unknown
		*e = engineBlocks{
			read: now, identity: identity, size: max(size, 0),
			simple: vitals.Label(info, "sliding_window") == "None" && none(vitals.Label(info, "mamba_block_size")),
		}
	}
}

// none reports whether a label of vLLM is absent or unset.
func none(label string) bool { return label == "" || label == "None" }

func largest(groups []int) (n int) {
	for _, g := range groups {
		n = max(n, g)
	}
	return n
}

// lacksBlocks reports whether a sound transfer names fewer blocks than the prompt of leg p has.
func (x *exchange) lacksBlocks(p *prefilled, object []byte) bool {
	if o, err := kvtransfer.Parse(object); err != nil || string(o.Get("transfer_mode")) == `"push"` || !kvtransfer.IsNull(o.Get("transfer_id")) ||
		kvtransfer.Number(o.Get("dcp_size")) > 1 {
		return false
	}
	tokens := x.api.PromptTokens(p.text)
	if n := kvtransfer.Number(kvtransfer.Find(object, "remote_num_tokens")); n > 0 && (n < tokens || tokens == 0) { // hybrid models leave a token to decode
		tokens = n
	}
	groups := blocksOf(kvtransfer.Find(object, "remote_block_ids"))
	return tokens > 0 && x.s.blocks.tooFew(x.r.Context(), x.s.deaths.vitals, x.prefillBase(p.target), groups, tokens, x.s.o.Now())
}

// blocksOf returns the numbers of blocks in each group of a sound list.
func blocksOf(list []byte) (groups []int) {
	elements, _ := kvtransfer.Elements(list)
	for _, g := range elements {
		if !strings.HasPrefix(string(g), "[") {
			return []int{len(elements)}
		}
		ids, _ := kvtransfer.Elements(g)
		groups = append(groups, len(ids))
	}
	return groups
}
