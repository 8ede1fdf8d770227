// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/mesh"
)

// announcedLines are the ranges that a node announces, with their sources.
func announcedLines(all []mesh.Announced) []string {
	names := map[string]string{mesh.FromConfiguration: "configuration", mesh.FromKubernetes: "Kubernetes"}
	ranges := map[string][]string{}
	var order, out []string
	for _, a := range all {
		var by []string
		for _, s := range a.Sources {
			by = append(by, cmp.Or(names[s], s))
		}
		who := strings.Join(by, ", ")
		if ranges[who] == nil {
			order = append(order, who)
		}
		ranges[who] = append(ranges[who], a.Range.String())
	}
	for _, who := range order {
		list, more := ranges[who], ""
		if n := len(list) - limit.MeshNames; n > 0 {
			list, more = list[:limit.MeshNames], fmt.Sprintf(" and %d more", n)
		}
		out = append(out, fmt.Sprintf("announces %s%s (%s)", strings.Join(list, ", "), more, who))
	}
	return out
}
