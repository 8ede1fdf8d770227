// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"
	"slices"

	"github.com/google/nftables"
)

// NATBefore are chains of others that may rewrite the source of a packet before a chain of that priority is asked, each
// as "TABLE/CHAIN (priority N)". Empty chains do not count. What cannot be read is left out.
//
//	table: ours of nftables
func NATBefore(table string, priority int) (out []string) {
	c, err := nftables.New()
	if err != nil {
		return nil
	}
	chains, err := c.ListChains()
	if err != nil {
		return nil
	}
	for _, chain := range chains {
		nat := chain.Type == nftables.ChainTypeNAT && chain.Hooknum != nil && chain.Priority != nil
		if !nat || chain.Table.Name == table || *chain.Hooknum != *nftables.ChainHookPostrouting ||
			int(*chain.Priority) > priority {
			continue
		}
		if rules, err := c.GetRules(chain.Table, chain); err == nil && len(rules) > 0 {
			out = append(out, fmt.Sprintf("%s/%s (priority %d)", chain.Table.Name, chain.Name, *chain.Priority))
		}
	}
	slices.Sort(out)
	return out
}
