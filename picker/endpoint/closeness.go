package endpoint

// Level is how close two endpoints are: the tightest part of a topology that both
// are in.
type Level uint8

// Levels, tightest first.
const (
	LevelHost Level = iota
	LevelRack
	LevelZone
	LevelRegion
	LevelElsewhere // they share none of these
	NumLevels      = int(LevelElsewhere) + 1
)

// Levels are the names of the levels that labels tell, tightest first, and the
// labels.
var Levels = [...]struct{ Name, Label string }{
	LevelHost:   {"host", "kubernetes.io/hostname"},
	LevelRack:   {"rack", "topology.kubernetes.io/rack"},
	LevelZone:   {"zone", "topology.kubernetes.io/zone"},
	LevelRegion: {"region", "topology.kubernetes.io/region"},
}

// Shared returns the tightest level that both endpoints are in. One that says
// nothing of its place counts as in the other's zone.
func Shared(a, b *Endpoint) Level {
	said := false
	for i := range a.levels {
		x, y := a.levels[i], b.levels[i]
		if x == y && x > noName {
			return Level(i)
		}
		said = said || x != 0 && y != 0
	}
	if !said {
		return LevelZone
	}
	return LevelElsewhere
}

// noName stands for a level's label that is there and empty, 0 for none.
const noName = 1

// Zone returns the zone that the endpoint is in, "" when discovery does not say.
func (e *Endpoint) Zone() string {
	zone, _ := e.Label(Levels[LevelZone].Label)
	return zone
}

// zoneOf returns the number of a zone's name, 0 for none.
func zoneOf(name string) uint64 {
	if name == "" {
		return 0
	}
	return levelsOf(map[string]string{Levels[LevelZone].Label: name})[LevelZone]
}

// levelsOf names the places that labels tell by numbers.
func levelsOf(labels map[string]string) (places [len(Levels)]uint64) {
	for i := range Levels {
		switch name, has := labels[Levels[i].Label]; {
		case has && name == "":
			places[i] = noName
		case has:
			places[i] = placeOf(name) | 2
		}
	}
	return places
}
