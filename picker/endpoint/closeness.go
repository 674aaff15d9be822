package endpoint

// Level is the closeness of two endpoints: the smallest topology domain that contains both.
type Level uint8

// Levels, closest first.
const (
	LevelHost Level = iota
	LevelRack
	LevelZone
	LevelRegion
	LevelElsewhere // no common domain
	NumLevels      = int(LevelElsewhere) + 1
)

// Levels lists the names of the levels with labels, closest first, and their labels.
var Levels = [...]struct{ Name, Label string }{
	LevelHost:   {"host", "kubernetes.io/hostname"},
	LevelRack:   {"rack", "topology.kubernetes.io/rack"},
	LevelZone:   {"zone", "topology.kubernetes.io/zone"},
	LevelRegion: {"region", "topology.kubernetes.io/region"},
}

// Shared returns the closest level that both endpoints share. An endpoint without topology labels
// counts as in the same zone.
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

// noName represents a level's label with an empty value; 0 means no label.
const noName = 1

// Zone returns the endpoint's zone, "" if unknown.
func (e *Endpoint) Zone() string {
	zone, _ := e.Label(Levels[LevelZone].Label)
	return zone
}

// zoneOf returns the number of a zone's name, 0 for "".
func zoneOf(name string) uint64 {
	if name == "" {
		return 0
	}
	return levelsOf(map[string]string{Levels[LevelZone].Label: name})[LevelZone]
}

// levelsOf returns the numbers of the topology domains named by labels.
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
