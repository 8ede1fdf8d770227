// SPDX-License-Identifier: Apache-2.0

package server

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"
)

// expiry is when a token ends by itself, of one that the API server has found good: nothing is verified here. It is
// zero if the token does not say so, or is no JWT.
func expiry(token string) (ends time.Time) {
	parts := strings.SplitN(token, ".", jwtParts+1)
	if len(parts) != jwtParts || len(parts[1]) > mostClaims {
		return ends
	}
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return ends
	}
	var claims struct {
		Exp float64 `json:"exp"`
	}
	if json.Unmarshal(raw, &claims) != nil || claims.Exp < 1 || claims.Exp > mostExpiry {
		return ends
	}
	return time.Unix(int64(claims.Exp), 0)
}
