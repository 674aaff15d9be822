package roles

import (
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/engine"
	"github.com/grapevine-epp/grapevine/internal/lab/replay"
	"github.com/grapevine-epp/grapevine/internal/lab/trace"
)

func TestSuggest(t *testing.T) {
	w, err := trace.Named("chat")
	if err != nil {
		t.Fatal(err)
	}
	fleet, err := replay.ParseFleet("2xprefill+2xdecode")
	if err != nil {
		t.Fatal(err)
	}
	c := replay.Case{
		Trace: w.Generate(trace.GenerateOptions{Rate: 1, Length: 4 * time.Minute, BlockSize: trace.DefaultBlockSize}), Seed: 1,
		Network: replay.Network{BytesPerToken: 327680, BytesPerSecond: 20e9, Latency: 30 * time.Millisecond},
	}
	fleet.Apply(&c)
	c.Engine.Model = engine.Model70B
	all, best, err := Suggest(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 3 || all[0].Prefill != 0 || all[2].Decode != 2 || all[1].Result.Remote == 0 || all[0].Result.Remote != 0 {
		t.Errorf("%+v", all)
	}
	for i := range all {
		if all[i].score < all[best].score {
			t.Errorf("%d is suggested, %d is better", best, i)
		}
	}
	var b strings.Builder
	Write(&b, "chat", all, best)
	if strings.Count(b.String(), "<- suggested") != 1 {
		t.Error(b.String())
	}
}
