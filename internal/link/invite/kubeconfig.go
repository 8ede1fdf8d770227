// SPDX-License-Identifier: Apache-2.0

package invite

import (
	"encoding/base64"
	"encoding/json"
)

// Kubeconfig is one with which the account of a token is used where the line says, in JSON, which YAML contains.
func (l Line) Kubeconfig(token string) (string, error) {
	type named map[string]any
	const host, account = "host", "member"
	cluster := named{"server": l.Server}
	for field, value := range map[string]string{"tls-server-name": l.ServerName, "proxy-url": l.Proxy,
		"certificate-authority-data": base64.StdEncoding.EncodeToString(l.CA)} {
		if value != "" {
			cluster[field] = value
		}
	}
	out, err := json.MarshalIndent(named{
		"apiVersion": "v1", "kind": "Config", "current-context": host,
		"clusters": []named{{"name": host, "cluster": cluster}},
		"users":    []named{{"name": account, "user": named{"token": token}}},
		"contexts": []named{{"name": host, "context": named{"cluster": host, "user": account}}},
	}, "", "  ")
	return string(out) + "\n", err
}
