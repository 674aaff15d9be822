package replay

import (
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/engine"
)

// Form is a kind of fleet: its engines, their memory and their discipline.
type Form struct {
	Fleet  Fleet // named after the form
	About  string
	Engine engine.Config
}

// Forms returns the fleets of the matrix, each of eight engines.
func Forms() []Form {
	machine := func(name string) engine.Machine { m, _ := engine.MachineByName(name); return m }
	form := func(name, about string, m engine.Machine, memory float64, host int) Form {
		blocks := int(memory * float64(m.KVTokens) / matrixBlock)
		f := Form{Fleet: Engines(8), About: m.About + about}
		f.Fleet.Name = name
		f.Engine = engine.Config{
			Model: m.Model, Blocks: blocks, MaxSeqs: 1024, AdmitWhole: true, Host: engine.Host{Blocks: host * blocks, Load: m.Load},
		}
		return f
	}
	noisy := form("noisy", ", a quarter of the memory and four times that in the host, half of the engines at half speed, noise of 10% and pauses", machine("70b-spec"), .25, 4)
	for i := range noisy.Fleet.Kinds {
		if i%2 == 1 {
			noisy.Fleet.Kinds[i].Speed = .5
		}
	}
	noisy.Engine.Noise = engine.Noise{Sigma: .1, PauseEvery: time.Minute, PauseMax: 500 * time.Millisecond}
	return []Form{form("dense", "", machine("70b"), 1, 0), form("moe", "", machine("235b"), 1, 0), noisy}
}

// matrixBlock is the block size of the matrix. It equals the block size of public traces.
const matrixBlock = 512
