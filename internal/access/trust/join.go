// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
)

// Join is what a new agent needs to join: the hub's addresses, the pin of its CA, and
// the token. Its line is one word that needs no quoting in a shell:
//
//	tombolo://<token id>.<secret>@<host:port>[,<host:port>...]/<cluster>/<CA pin>
type Join struct {
	TokenID, Secret string
	Hubs            []string // host:port
	Cluster         id.Cluster
	Pin             string
}

const scheme = "tombolo://"

// String renders the line with the secret: print it only for the person who asked.
func (j Join) String() string {
	return scheme + j.TokenID + "." + j.Secret + "@" + strings.Join(j.Hubs, ",") + "/" + j.Cluster.String() + "/" + j.Pin
}

// ParseJoin parses a line. Its errors name the wrong part and never show the secret.
func ParseJoin(line string) (Join, error) {
	bad := func(why string) (Join, error) {
		return Join{}, fault.New(fault.CodeJoinLine, "the join line cannot be read").Whyf("%s", why).
			Hint("copy the whole line again from 'tombolo token create'")
	}
	rest, ok := strings.CutPrefix(strings.TrimSpace(line), scheme)
	if !ok {
		return bad("it does not begin with " + scheme)
	}
	if strings.ContainsAny(rest, " \t\r\n") {
		return bad("there is white space within it")
	}
	token, rest, ok := strings.Cut(rest, "@")
	tokenID, secret, dot := strings.Cut(token, ".")
	if !ok || !dot || !isToken(tokenID, tokenIDLength) || !isToken(secret, secretLength) {
		return bad("the token part is damaged")
	}
	// The rest is not shown either: the secret may be there by mistake.
	parts := strings.Split(rest, "/")
	if len(parts) != 3 {
		return bad("it must end with /<cluster>/<pin>")
	}
	hubs := strings.Split(parts[0], ",")
	for _, h := range hubs {
		if _, err := policy.ParseTarget(h); err != nil {
			return bad("a hub address is not host:port")
		}
	}
	cluster, err := id.ParseCluster(parts[1])
	if err != nil {
		return bad("the cluster name is damaged")
	}
	if raw, err := base64.RawURLEncoding.Strict().DecodeString(parts[2]); err != nil || len(raw) != sha256.Size {
		return bad("the CA pin is damaged")
	}
	return Join{tokenID, secret, hubs, cluster, parts[2]}, nil
}

const (
	tokenIDLength = 8
	secretLength  = 32 // 160 bits
)

func isToken(s string, n int) bool {
	if len(s) != n {
		return false
	}
	for i := 0; i < len(s); i++ {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '2' || c > '7') {
			return false
		}
	}
	return true
}

// Token is a join token as the hub stores it: the secret is hashed.
type Token struct {
	ID         string    `json:"id"`
	Cluster    string    `json:"cluster"`
	SecretHash string    `json:"secretHash"`
	Created    time.Time `json:"created"`
	Expires    time.Time `json:"expires"`
	Uses       int       `json:"uses"`   // how many agents may join
	Claims     []Claim   `json:"claims"` // by those that have joined
	// Nodes is set on a token for nodes of the mesh instead of agents; Node, if not
	// empty, is the only name that a node may take with it.
	Nodes bool   `json:"nodes,omitempty"`
	Node  string `json:"node,omitempty"`
}

// Claim is one use of a token.
type Claim struct {
	KeyHash string    `json:"keyHash"`
	Agent   string    `json:"agent"` // or node
	At      time.Time `json:"at"`
}

// NewToken makes a random token and its secret (160 bits, so a plain hash protects it
// at rest).
func NewToken(cluster id.Cluster, ttl time.Duration, uses int, now time.Time) (Token, string) {
	secret := randomText(secretLength)
	return Token{
		ID: randomText(tokenIDLength), Cluster: cluster.String(), SecretHash: hashSecret(secret),
		Created: now.UTC(), Expires: now.Add(ttl).UTC(), Uses: uses,
	}, secret
}

// NameFor decides the name of an agent or node that joins with the token. asked is the
// name that a node asks for, or zero; an agent gets fresh.
func (t Token) NameFor(node bool, asked id.Node, fresh id.Agent) (string, error) {
	switch {
	case node != t.Nodes && t.Nodes:
		return "", fault.New(fault.CodeJoinLine, "the token is for a node of the mesh, not for an agent").
			Hint("make a join line for agents: tombolo token create --cluster %s; the token has not been used", t.Cluster)
	case node != t.Nodes:
		return "", fault.New(fault.CodeJoinLine, "the token is for an agent, not for a node of the mesh").
			Hint("make a join line for nodes: tombolo token create --cluster %s --node; the token has not been used", t.Cluster)
	case !node:
		return fresh.String(), nil
	case t.Node != "" && !asked.IsZero() && asked.String() != t.Node:
		return "", fault.Newf(fault.CodeJoinLine, "the token is for the node %s, not for %s", t.Node, asked).
			Hint("correct node.name, or make a line for it: tombolo token create --cluster %s --node=%s", t.Cluster, asked)
	case t.Node != "":
		return t.Node, nil
	case asked.IsZero():
		return "", fault.New(fault.CodeJoinLine, "neither the token nor the node names the node").
			Hint("set node.name; the token has not been used")
	}
	return asked.String(), nil
}

// NewAgentName makes a random name for an agent that joins.
func NewAgentName() (id.Agent, error) { return id.ParseAgent("agent-" + randomText(8)) }

func randomText(n int) string {
	raw := make([]byte, n)
	rand.Read(raw) // never fails (crypto/rand since Go 1.24)
	return strings.ToLower(base32.StdEncoding.EncodeToString(raw))[:n]
}

func hashSecret(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// UnknownToken is the answer both to an unknown id and to a wrong secret: without the
// secret nothing can be learned.
func UnknownToken() error {
	return fault.New(fault.CodeTokenUnknown, "the token is not known").
		Hint("make a new join line on the hub: tombolo token create")
}

// Use decides whether secret and key may claim the token, and returns the updated token
// and the name of the agent. A key that has claimed before gets its name again while the
// token is valid: the answer to its first try may have been lost. The caller checks that
// the name was not revoked since, and stores the result in the same transaction.
func (t Token) Use(secret, keyHash string, newName string, now time.Time) (Token, string, error) {
	refuse := func(code fault.Code, what string) (Token, string, error) {
		return t, "", fault.New(code, what).
			Hint("make a new join line on the hub: tombolo token create --cluster %s", t.Cluster)
	}
	if subtle.ConstantTimeCompare([]byte(hashSecret(secret)), []byte(t.SecretHash)) != 1 {
		return t, "", UnknownToken()
	}
	if !now.Before(t.Expires) {
		return refuse(fault.CodeTokenExpired, "the token expired at "+t.Expires.UTC().Format(time.RFC3339))
	}
	for _, c := range t.Claims {
		if c.KeyHash == keyHash {
			return t, c.Agent, nil
		}
	}
	if n := len(t.Claims); n >= t.Uses {
		what := "the token allows no use"
		if n > 0 {
			what = "the token was used before, at " + t.Claims[n-1].At.UTC().Format(time.RFC3339)
		}
		return refuse(fault.CodeTokenUsed, what)
	}
	t.Claims = append(slices.Clone(t.Claims), Claim{keyHash, newName, now.UTC()})
	return t, newName, nil
}
