// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/stream/hub/credentials"
	"github.com/tombolo-io/tombolo/internal/stream/hub/state"
)

// join serves enrolment and renewal.
type join struct{ *parts }

// byRole gives operators the admin API, and others what is for their role. It checks the peer again for each
// request: a connection may be kept for longer than its certificate lives.
func (jn *join) byRole(all map[id.Role]http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, err := jn.credentials.Verify(peerOf(r.Context()), 0)
		next := all[who.Role]
		if err == nil && next == nil {
			err = fault.Newf(fault.CodeUnauthorized, "%s may not use the admin API", who).Whyf("only operators may")
		}
		if err != nil {
			jn.record.RefusedPeer("admin", peerOf(r.Context()), r.RemoteAddr, err)
			w.Header().Set("Connection", "close")
			writeFault(w, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// joinHandler serves enrolment with a token and renewal with the old certificate.
func (jn *join) joinHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/join", func(w http.ResponseWriter, r *http.Request) {
		jn.answerJoin(w, r, "join", func() (admin.JoinAnswer, error) { return jn.enrol(r) })
	})
	mux.HandleFunc("POST /v1/renew", func(w http.ResponseWriter, r *http.Request) {
		jn.answerJoin(w, r, "renew", func() (admin.JoinAnswer, error) { return jn.renew(r) })
	})
	return mux
}

func (jn *join) answerJoin(w http.ResponseWriter, r *http.Request, kind string, do func() (admin.JoinAnswer, error)) {
	// One request for each connection, which must have come within a bound.
	w.Header().Set("Connection", "close")
	http.NewResponseController(w).SetReadDeadline(time.Now().Add(limit.RequestHeaderTime))
	answer, err := do()
	jn.metrics.Joins.WithLabelValues(kind, outcome(fault.From(err))).Inc()
	if err != nil {
		jn.record.RefusedPeer(kind, peerOf(r.Context()), r.RemoteAddr, err)
		writeFault(w, err)
		return
	}
	writeJSON(w, answer)
}

// enrol lets an agent or a node join with a token.
func (jn *join) enrol(r *http.Request) (admin.JoinAnswer, error) {
	var q admin.JoinRequest
	if err := readJSON(r, limit.JoinBody, &q); err != nil {
		return admin.JoinAnswer{}, err
	}
	key, err := trust.ParseCSR([]byte(q.CSR))
	if err != nil {
		return admin.JoinAnswer{}, err
	}
	keyHash, err := trust.KeyHash(key)
	if err != nil {
		return admin.JoinAnswer{}, err
	}
	use := state.Use{TokenID: q.TokenID, Secret: q.Secret, Cluster: q.Cluster, KeyHash: keyHash}
	role := id.RoleAgent
	if q.Role != "" || q.Node != "" {
		role = id.RoleNode
		if err := nodeUse(q, &use); err != nil {
			return admin.JoinAnswer{}, err
		}
	}
	cluster, name, leaf, err := jn.credentials.Enrol(role, use, key)
	if err != nil {
		jn.log.Warn("join refused", telemetry.AttrPeer, r.RemoteAddr, telemetry.AttrCode, fault.From(err).Code,
			telemetry.AttrReason, err)
		return admin.JoinAnswer{}, err
	}
	jn.clusters.add(cluster)
	jn.log.Info(string(role)+" joined", telemetry.AttrCluster, cluster, attrOf(role), name,
		telemetry.AttrPeer, r.RemoteAddr)
	return jn.joined(cluster, name, leaf), nil
}

// renew issues a new certificate to an agent that proves the key of its old
// one, which may have run out within the grace.
func (jn *join) renew(r *http.Request) (admin.JoinAnswer, error) {
	var q admin.RenewRequest
	if err := readJSON(r, limit.JoinBody, &q); err != nil {
		return admin.JoinAnswer{}, err
	}
	who, err := jn.credentials.Verify(peerOf(r.Context()), jn.settings.Load().renewGrace)
	if err != nil {
		return admin.JoinAnswer{}, err
	}
	if who.Role != id.RoleAgent && who.Role != id.RoleNode {
		return admin.JoinAnswer{}, fault.Newf(fault.CodeUnauthorized, "%s may not renew here", who).
			Whyf("only agents and nodes may")
	}
	key, err := trust.ParseCSR([]byte(q.CSR))
	if err != nil {
		return admin.JoinAnswer{}, err
	}
	leaf, err := jn.credentials.Renew(who, credentials.IssuedAt(peerOf(r.Context())[0]), key)
	if err != nil {
		return admin.JoinAnswer{}, err
	}
	jn.clusters.add(who.Cluster)
	jn.log.Info(string(who.Role)+" renewed its certificate",
		telemetry.AttrCluster, who.Cluster, attrOf(who.Role), who.Name)
	return jn.joined(who.Cluster, who.Name, leaf), nil
}

// nodeUse adds to a use of a token what a node asks for.
func nodeUse(q admin.JoinRequest, use *state.Use) (err error) {
	if q.Role != string(id.RoleNode) {
		return fault.Newf(fault.CodeRequest, "nobody joins as %q", clip(q.Role, 32)).
			Whyf("agents, without a role, and nodes do")
	}
	use.Node = true
	if q.Node != "" {
		if use.Name, err = id.ParseNode(q.Node); err != nil {
			return fault.New(fault.CodeRequest, "the node's name is not usable").Because(err)
		}
	}
	return nil
}

// attrOf is the log attribute for the name of an agent or a node.
func attrOf(role id.Role) string {
	if role == id.RoleNode {
		return telemetry.AttrNode
	}
	return telemetry.AttrAgent
}

func (jn *join) joined(cluster id.Cluster, name string, leaf *x509.Certificate) admin.JoinAnswer {
	return admin.JoinAnswer{
		Cluster: cluster.String(), Agent: name, Certificate: string(trust.EncodeCertificate(leaf.Raw)),
		CA: string(jn.credentials.CA().CertificatePEM()), UnixMillis: jn.now().UnixMilli(),
	}
}

// readJSON reads a bounded body strictly.
func readJSON(r *http.Request, most int64, into any) error {
	dec := json.NewDecoder(io.LimitReader(r.Body, most+1))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		if dec.InputOffset() >= most {
			return fault.New(fault.CodeRequest, "the request body is too large").Whyf("at most %d bytes are read", most)
		}
		return fault.New(fault.CodeRequest, "the request body cannot be read").Because(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return fault.New(fault.CodeRequest, "the request body cannot be read").Whyf("something follows the JSON value")
	}
	return nil
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.Encode(v)
}

func writeFault(w http.ResponseWriter, err error) {
	f := fault.From(err)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Tombolo-Fault", string(f.Code))
	if f.Again > 0 {
		w.Header().Set("Retry-After", retryAfter(f))
	}
	w.WriteHeader(statusOf(f))
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.Encode(admin.BodyOf(f))
}

func meta(kind string) admin.Meta { return Meta(kind) }

// Meta stands at the top of every answer.
func Meta(kind string) admin.Meta { return admin.Meta{APIVersion: v1alpha1.Version, Kind: kind} }
