// SPDX-License-Identifier: Apache-2.0

package acl

import (
	"context"
	"encoding/json"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tombolo-io/tombolo/internal/access/gardener"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/control/manager"
)

const (
	// ShootPath is the path of the webhook, as the manifest has it.
	ShootPath = "/validate/shoot"

	// KindShoot is what it reviews.
	KindShoot = "Shoot"

	shootGroup = "core.gardener.cloud"
)

// Admission judges the lists of Shoots in the garden, before a seed has them. most is how many ranges a list may have;
// 0: any number.
func Admission(most int) manager.Feature {
	return manager.Feature{Name: "shootAdmission", Add: func(_ context.Context, h manager.Host) error {
		h.GetWebhookServer().Register(ShootPath, &admission.Webhook{Handler: admission.HandlerFunc(
			func(_ context.Context, r admission.Request) admission.Response {
				out := admit(r.Name, r.Object.Raw, most)
				code := fault.Code("")
				if !out.Allowed {
					code = fault.CodeConfig
				}
				h.Reviews.WithLabelValues(KindShoot, telemetry.Outcome(code)).Inc()
				return out
			})})
		return nil
	}}
}

// admit is the answer about a Shoot. One that is being deleted may lose its finalizers whatever its list is.
func admit(name string, raw []byte, most int) admission.Response {
	var shoot struct {
		Metadata gardener.Metadata `json:"metadata"`
		Spec     struct {
			Extensions []gardener.ShootExtension `json:"extensions"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(raw, &shoot); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	var found []gardener.Problem
	if shoot.Metadata.DeletionTimestamp == "" {
		from, wrong := gardener.Author(shoot.Metadata.Annotations)
		found = append(wrong, gardener.Admit(shoot.Spec.Extensions, gardener.Options{Most: most, Author: from,
			Force: shoot.Metadata.Annotations[gardener.AnnotationForce] == "true"})...)
	}
	out := admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Allowed: gardener.Usable(found)}}
	s := &metav1.Status{
		Status: metav1.StatusFailure, Reason: metav1.StatusReasonInvalid, Code: http.StatusUnprocessableEntity,
		Details: &metav1.StatusDetails{Group: shootGroup, Kind: KindShoot, Name: name},
		Message: "the access list of Shoot " + name + " is invalid:",
	}
	for _, p := range found {
		if p.Warning {
			out.Warnings = append(out.Warnings, p.String())
			continue
		}
		s.Message += "\n  " + p.String()
		what := p
		what.Path = "" // the cause has it as a field
		s.Details.Causes = append(s.Details.Causes, metav1.StatusCause{
			Type: metav1.CauseType(p.Cause), Field: p.Path, Message: what.String(),
		})
	}
	if !out.Allowed {
		out.Result = s
	}
	return out
}
