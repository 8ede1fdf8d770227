// SPDX-License-Identifier: Apache-2.0

// Package policyfile reads the files of the access policy and puts what is good into force; confdir
// notices that they change, and keeps the last good content of a file with mistakes. It does not
// decide about a dial: that is authz.
package policyfile
