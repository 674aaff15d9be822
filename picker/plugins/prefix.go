package plugins

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/plugin"
)

// prefixParams are the parameters of all versions of prefix-cache-scorer. Index settings are passed
// to this program's producer.
type prefixParams struct {
	IndexParams
	PrefixMatchInfoProducerName string  `json:"prefixMatchInfoProducerName,omitempty"`
	MatchLengthWeight           float64 `json:"matchLengthWeight,omitempty"`
	MatchLengthScaleTokens      float64 `json:"matchLengthScaleTokens,omitempty"`

	// Of the version in which this scorer had its own index.
	Mode           string           `json:"mode,omitempty"`
	IndexerConfig  plugin.Unchecked `json:"indexerConfig,omitempty"`
	KVEventsConfig plugin.Unchecked `json:"kvEventsConfig,omitempty"`
}

// prefixScorer scores the tier-weighted share of the prompt that an endpoint holds; 1 means all.
// With a weight, the square of the held length relative to a scale counts as well.
type prefixScorer struct {
	weight, scale float64
	holds         *plugin.Holdings
}

const defaultMatchScale = 8192

func newPrefixScorer(p prefixParams) (plugin.Plugin, error) {
	if p.MatchLengthScaleTokens == 0 {
		p.MatchLengthScaleTokens = defaultMatchScale
	}
	bind := func(h *plugin.Holdings) plugin.Plugin {
		return plugin.Plugin{Scorer: prefixScorer{p.MatchLengthWeight, p.MatchLengthScaleTokens, h}}
	}
	out := bind(nil)
	out.Bind, out.Producer = bind, p.producer(false)
	return out, plugin.Faults(p.check(),
		plugin.Require(p.MatchLengthWeight >= 0 && p.MatchLengthWeight <= 1, "matchLengthWeight", "must be between 0 and 1"),
		plugin.Require(p.MatchLengthScaleTokens > 0, "matchLengthScaleTokens", "must be positive"))
}

// Score implements cycle.Scorer.
func (s prefixScorer) Score(c *cycle.Cycle, scores []float64) {
	in := float64(max(c.Request.InputTokens, 1))
	for k, held := range holdings(c, s.holds, scores) {
		scores[k] = min(held/in, 1)
		if s.weight > 0 {
			long := min(held/s.scale, 1)
			scores[k] = s.weight*long*long + (1-s.weight)*scores[k]
		}
	}
}

// Chosen implements cycle.Observer.
func (s prefixScorer) Chosen(c *cycle.Cycle, ep *endpoint.Endpoint) {
	if s.holds != nil {
		s.holds.Chosen(c, ep)
	}
}

// holdings fills held with the tokens that each candidate holds, according to the given producer
// or, if nil, to all data.
func holdings(c *cycle.Cycle, from *plugin.Holdings, held []float64) []float64 {
	if from != nil {
		from.Fill(c, held)
		return held
	}
	for k := range held {
		held[k] = c.Held(k)
	}
	return held
}

// preciseParams are the parameters of precise-prefix-cache-scorer. Its index, event and tokenizer
// settings are read only for block size and tier weights; the rest is built in.
type preciseParams struct {
	TierWeights          tierParams `json:"tierWeights"`
	TokenProcessorConfig struct {
		BlockSize       int    `json:"blockSize,omitempty"`
		BlockSizeTokens int    `json:"blockSizeTokens,omitempty"`
		HashSeed        string `json:"hashSeed,omitempty"`
		HashAlgorithm   string `json:"hashAlgorithm,omitempty"`
		ModelName       string `json:"modelName,omitempty"`
	} `json:"tokenProcessorConfig,omitempty"`
	IndexerConfig       plugin.Unchecked `json:"indexerConfig,omitempty"`
	KVEventsConfig      *kvEvents        `json:"kvEventsConfig,omitempty"`
	SpeculativeIndexing bool             `json:"speculativeIndexing,omitempty"`
	SpeculativeTTL      string           `json:"speculativeTTL,omitempty"`
}

func newPreciseScorer(p preciseParams) (plugin.Plugin, error) {
	producer, err := p.producer()
	return plugin.Plugin{Scorer: prefixScorer{}, Producer: producer, Differs: p.differs()}, plugin.Faults(err, p.KVEventsConfig.check(),
		plugin.Require(p.TokenProcessorConfig.BlockSize >= 0, "tokenProcessorConfig.blockSize", "must not be negative"),
		plugin.Duration("speculativeTTL", p.SpeculativeTTL))
}

func (p preciseParams) producer() (*plugin.Producer, error) {
	tiers, err := p.tiers()
	return &plugin.Producer{
		Precise: true, BlockTokens: max(p.TokenProcessorConfig.BlockSize, p.TokenProcessorConfig.BlockSizeTokens), Tiers: tiers,
		Events: p.KVEventsConfig.ports(), EventsListen: p.KVEventsConfig.listen(),
	}, err
}

// kvEvents configures the event source.
type kvEvents struct {
	ZMQEndpoint        string `json:"zmqEndpoint,omitempty"`
	TopicFilter        string `json:"topicFilter,omitempty"`
	Concurrency        int    `json:"concurrency,omitempty"`
	EngineType         string `json:"engineType,omitempty"`
	DiscoverPods       *bool  `json:"discoverPods,omitempty"`
	PodDiscoveryConfig struct {
		SocketPort       int    `json:"socketPort,omitempty"`
		ReplaySocketPort int    `json:"replaySocketPort,omitempty"`
		PodLabelSelector string `json:"podLabelSelector,omitempty"`
		PodNamespace     string `json:"podNamespace,omitempty"`
	} `json:"podDiscoveryConfig,omitempty"`
}

// defaultEventPort is the port of engines that publish events if none is configured.
const defaultEventPort = 5557

// usualTopics is the default topic filter.
const usualTopics = "kv@"

// listen returns the address where engines connect, if one is configured and endpoints are not
// dialed instead.
func (k *kvEvents) listen() string {
	if k == nil || k.PodDiscoveryConfig.SocketPort > 0 || k.DiscoverPods != nil && *k.DiscoverPods {
		return ""
	}
	return k.ZMQEndpoint
}

// ports returns the event settings of endpoints for which the endpoints file has none.
func (k *kvEvents) ports() endpoint.Events {
	if k.listen() != "" {
		return endpoint.Events{Inbound: true, ReplayPort: max(k.PodDiscoveryConfig.ReplaySocketPort, 0), Topic: cmp.Or(k.TopicFilter, usualTopics), Ranks: 1}
	}
	if k == nil || k.DiscoverPods != nil && !*k.DiscoverPods {
		return endpoint.Events{}
	}
	p := k.PodDiscoveryConfig
	return endpoint.Events{Port: cmp.Or(p.SocketPort, defaultEventPort), ReplayPort: max(p.ReplaySocketPort, 0), Topic: k.TopicFilter, Ranks: 1}
}

// binds reports whether an address is valid for listening.
func binds(at string) bool {
	host, port, err := net.SplitHostPort(strings.TrimPrefix(at, "tcp://"))
	n, bad := strconv.Atoi(port)
	if err != nil || bad != nil || n < 1 || n > 1<<16-1 || !strings.HasPrefix(at, "tcp://") {
		return false
	}
	_, err = netip.ParseAddr(host)
	return host == "*" || host == "" || err == nil
}

func (k *kvEvents) check() error {
	if k == nil {
		return nil
	}
	const port = 1<<16 - 1
	p := k.PodDiscoveryConfig
	return plugin.Faults(
		plugin.Require(k.ZMQEndpoint == "" || binds(k.ZMQEndpoint), "kvEventsConfig.zmqEndpoint", "must be tcp://, an address of this machine or *, and a port"),
		plugin.Require(p.SocketPort >= 0 && p.SocketPort <= port, "kvEventsConfig.podDiscoveryConfig.socketPort", "must be a port"),
		plugin.Require(p.ReplaySocketPort <= port, "kvEventsConfig.podDiscoveryConfig.replaySocketPort", "must be a port"))
}

// differs lists the settings that have a different effect here.
func (p preciseParams) differs() (list []string) {
	if k := p.KVEventsConfig; k != nil {
		if e := k.ports(); e.Port > 0 {
			list = append(list, fmt.Sprintf("events are read from port %d of each endpoint for which the endpoints file says nothing else", e.Port))
		}
		switch at := k.listen(); {
		case at != "":
			list = append(list, fmt.Sprintf("publishers dial in at %s: their address must be an endpoint's and their topic, if kv@ENDPOINT@MODEL, name it (--events-allow for others)", at))
		case k.ZMQEndpoint != "":
			list = append(list, "kvEventsConfig.zmqEndpoint has no effect: Grapevine connects to the engines (discoverPods, socketPort)")
		}
	}
	if len(p.IndexerConfig) > 0 {
		list = append(list, "of indexerConfig the tier weights count; the index is sized by itself, shared by all replicas and measured as grapevine_index_*")
	}
	if p.SpeculativeTTL != "" || p.SpeculativeIndexing {
		list = append(list, "decisions always count as cached until events confirm them, for --speculate")
	}
	return list
}
