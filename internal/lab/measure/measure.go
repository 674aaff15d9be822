package measure

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/bench"
	"github.com/grapevine-epp/grapevine/internal/lab/rig"
	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
)

// Load configures a measurement.
type Load struct {
	Self           string        // path of the program grapevine
	Duration, Idle time.Duration // of each measurement, and of the idle one
	Rate           float64       // requests per second of the paced measurements
}

// measureWarmUp is the number of requests before each measurement at full load.
const measureWarmUp = 200

// Measure starts n engines with metrics pages of realistic size and one replica, and measures the
// replica when idle, at full load and at a fixed rate.
func (l Load) Measure(ctx context.Context, n int) (rows []bench.Row, reports []bench.Report, err error) {
	dir, err := os.MkdirTemp("", "grapevine-bench-")
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(dir)
	model := filepath.Join(dir, "model")
	if err := vocab.New().WriteModel(model); err != nil {
		return nil, nil, err
	}
	list := filepath.Join(dir, "endpoints.yaml")
	fleet, err := fleet.Open(fleet.Options{Engines: n, EndpointsFile: list, Engine: sim.Options{Events: &sim.EventOptions{}}})
	if err != nil {
		return nil, nil, err
	}
	defer fleet.Close()
	p, err := rig.StartSingle(ctx, dir, l.Self, "--endpoints", list, "--model", vocab.Name+"="+model)
	if err != nil {
		return nil, nil, err
	}
	defer p.Stop()
	idle, err := bench.MeasureIdle(ctx, p.PID(), l.Idle, n)
	if err != nil {
		return nil, nil, err
	}
	rows = idle.Rows()
	for _, o := range l.plays(p, n) {
		r, err := bench.Run(ctx, o)
		if err != nil {
			return nil, nil, err
		}
		reports = append(reports, r)
		rows = append(rows, r.Rows()...)
	}
	return rows, reports, nil
}

// plays returns the loads for a replica with n engines.
func (l Load) plays(p *rig.Single, n int) (list []bench.Options) {
	for _, mode := range bench.Modes {
		for _, size := range []int{1 << 10, 40 << 10, 400 << 10} {
			full := bench.Options{
				Target: p.ExtProc, TLS: bench.SelfSigned(), Mode: mode, BodySize: size, Model: vocab.Name,
				Duration: l.Duration, Warmup: measureWarmUp, PID: p.PID(), Endpoints: n,
			}
			paced := full
			paced.Rate, paced.Warmup = l.Rate, 0
			list = append(list, full, paced)
		}
	}
	return list
}
