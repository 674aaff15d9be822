// Command custom-picker is Grapevine with two additional plugin types.
package main

import (
	"github.com/grapevine-epp/grapevine/picker/epp"

	"example.com/custom-picker/tier"
)

func main() { epp.Main(epp.WithPlugins(tier.Scorer(), tier.Filter())) }
