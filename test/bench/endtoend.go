// SPDX-License-Identifier: Apache-2.0

package main

// The measurements of whole chains are those of transports with other crews.

// onChains turns a measurement of transports into one of chains.
func onChains(m measurement, name, against string) measurement {
	m.name, m.about = name, "end to end, "+m.about
	m.transports, m.family, m.against, m.crew = chains(), familyChains, against, chain
	return m
}

func endToEnd() []measurement {
	return []measurement{
		onChains(bulk("", "one stream", 1), "e2e1", chainRelay),
		onChains(bulk("", "16 streams", 16), "e2e16", chainRelay),
		onChains(idlePing(), "e2eping", chainRelay),
		onChains(pingBeside(), "e2epingbulk", chainRelay),
		onChains(opens(), "e2eopens", chainDirect),
	}
}
