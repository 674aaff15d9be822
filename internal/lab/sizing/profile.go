package sizing

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/grapevine-epp/grapevine/internal/lab/engine"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/endpoint/saved"
)

// Profile describes the engines of a running pool, as its replicas learned them.
type Profile struct {
	Model  engine.Model
	Tokens int // of KV memory of an engine; 0: unknown
	Slots  int // sequences of an engine; 0: unknown
}

// ErrProfile is wrapped by the error of a status without learned constants.
var ErrProfile = errors.New("no learned constants")

// enoughLearned is the number of samples from which learned constants describe an engine.
const enoughLearned = 20

// ReadProfile reads the mean engine from the output of grapevine status -o json.
//
// Learned decode steps include the prefills among them, which replay adds itself, so that they are
// shortened by the endpoint's share of prefill.
func ReadProfile(path string) (Profile, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return Profile{}, err
	}
	var status struct {
		Endpoints []saved.Endpoint `json:"endpoints"`
	}
	if err := json.Unmarshal(b, &status); err != nil {
		return Profile{}, fmt.Errorf("%s: not the output of grapevine status -o json: %w", path, err)
	}
	var p Profile
	var costs []endpoint.Cost
	for i := range status.Endpoints {
		f := status.Endpoints[i].Facts
		if f == nil || f.Cost.PrefillSeen < enoughLearned || f.Cost.DecodeSeen < enoughLearned {
			continue
		}
		c, ranks := f.Cost, max(f.Ranks, 1)
		alone := 1 - min(max(f.Load.Busy/float64(ranks), 0), mostPrefill)
		c.Step, c.PerSeq, c.PerContext = c.Step*alone, c.PerSeq*alone, c.PerContext*alone
		costs = append(costs, c)
		p.Tokens, p.Slots = max(p.Tokens, f.KVBlocks*f.BlockSize/ranks), max(p.Slots, int(f.Slots)/ranks)
	}
	if len(costs) == 0 {
		return p, fmt.Errorf("%s: %w: no endpoint has %d samples of first tokens and of decode steps; serve requests first, or use --model", path, ErrProfile, enoughLearned)
	}
	share := 1 / float64(len(costs))
	for _, c := range costs {
		p.Model.A += share * c.Step * 1e3
		p.Model.B += share * c.PerToken * 1e6
		p.Model.E += share * c.PerPair * 1e9
		p.Model.C += share * c.PerSeq * 1e6
		p.Model.D += share * c.PerContext * 1e9
	}
	return p, nil
}

// mostPrefill is the largest share of prefill by which steps are shortened.
const mostPrefill = .8
