//! Conformance suite of [`Store`]: cases that any implementation can run.
//!
//! A case gets a fresh, empty store and panics when a promise is broken. [`run_case`] runs one by its name;
//! [`for_each_conformance_case!`](crate::for_each_conformance_case) makes a test of each.

mod accepting;
mod canceling;
mod claiming;
mod credentials;
mod damage;
mod folding;
mod installation;
mod leasing;
mod pushing;
mod queueing;
mod reading;
mod resting;
mod retaining;
mod turns;
mod using;
mod world;

use std::{pin::Pin, sync::Arc};

use store::Store;

pub use self::damage::{Damage, run_damaged};

type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Calls the macro `$with` with the names of all cases, separated by commas.
#[macro_export]
macro_rules! for_each_conformance_case {
    ($with:ident) => {
        $with! {
            a_new_task_is_submitted_and_due,
            a_leased_task_is_working_at_once,
            a_repeated_key_finds_the_first_task,
            a_key_with_other_content_is_a_conflict,
            a_key_is_its_tenants_own,
            an_expired_key_is_forgotten,
            ten_at_once_with_one_key_make_one_task,
            a_repetition_is_answered_after_the_end,
            a_repeated_continuation_is_written_once,
            a_continuation_answers_a_question,
            a_continuation_without_a_lease_is_due,
            a_continuation_of_an_ended_task_is_refused,
            the_inbox_is_bounded,
            a_message_waits_behind_one_that_is_due,
            events_are_numbered_without_gaps,
            concurrent_writers_leave_no_gap,
            what_turns_use_of_models_adds_up,
            artifacts_grow_and_are_replaced,
            replaced_status_messages_become_history,
            a_turn_cannot_report_an_end,
            a_refused_append_changes_nothing,
            nothing_follows_the_end,
            a_waiting_message_is_the_next_turn,
            a_failure_ends_a_task_with_waiting_messages,
            only_one_of_two_ends_wins,
            a_held_reply_stays_out_of_sight,
            output_shows_a_held_task,
            a_held_task_can_be_revealed,
            a_held_task_that_is_put_off_is_revealed,
            a_reply_to_a_visible_task_completes_it,
            a_cancel_ends_an_idle_task,
            a_cancel_marks_a_running_task,
            the_mark_overrules_every_end,
            a_cancel_is_owed_to_others_until_it_is_told,
            any_end_but_completion_is_owed_to_others,
            completion_is_owed_to_others_where_the_agent_says_so,
            a_task_begins_for_a_turn_only_while_that_runs,
            a_context_has_the_state_of_its_newest_task,
            the_mark_ends_released_and_due_work,
            a_forced_cancel_voids_the_lease,
            cancel_and_completion_race_to_one_end,
            due_work_is_leased_once,
            only_ones_own_agents_are_leased,
            the_next_due_time_is_known,
            of_many_agents_those_with_work_are_found,
            each_agent_has_room_of_its_own,
            a_backlog_holds_up_nobody_else,
            what_a_tenant_leaves_the_others_get,
            tenants_are_served_in_turn,
            a_tenant_has_no_more_than_its_share,
            what_one_runs_is_never_claimed,
            a_holder_has_a_last_call,
            what_may_not_be_claimed_is_passed_over,
            a_lease_belongs_to_its_holder,
            a_lease_that_ran_out_is_taken_over,
            a_stale_lease_writes_nothing,
            a_renewed_lease_lives_on,
            no_length_of_time_is_too_long,
            a_retry_waits_until_it_is_due,
            a_release_is_an_attempt_that_is_not_counted,
            an_attempt_clears_the_artifacts_of_the_last,
            the_last_attempt_keeps_earlier_turns,
            what_callers_do_not_see_shows_nothing,
            a_turn_goes_on_from_its_state,
            a_turn_that_kept_nothing_starts_anew,
            a_parked_turn_waits_for_a_word,
            a_parked_turn_goes_on_in_time,
            a_word_that_comes_early_is_heard,
            a_cancel_wakes_what_is_parked,
            a_crash_after_a_rest_is_a_crash,
            a_wake_and_a_claim_may_come_together,
            a_second_wake_costs_nobody_its_place,
            a_forced_cancel_ends_what_rests,
            watchers_see_committed_events,
            work_that_becomes_due_is_announced,
            a_task_is_read_as_one_sum,
            children_name_their_parent,
            the_log_adds_up,
            history_is_cut_from_the_front,
            a_turn_hears_replies_that_are_in_artifacts,
            a_turn_hears_only_so_much,
            the_log_is_read_in_pages,
            what_is_large_is_read_when_there_is_room,
            the_whole_log_is_read_from_a_place,
            a_tail_that_follows_misses_nothing,
            a_feed_has_the_visible_events_of_one_tenant,
            a_feed_reads_a_bounded_part_at_a_time,
            a_turn_hears_what_was_said_before,
            large_messages_are_read_when_there_is_room,
            lists_are_newest_first_in_pages,
            lists_of_many_agents_are_one,
            lists_are_filtered_and_counted,
            totals_follow_every_change,
            others_tasks_do_not_exist,
            a_context_remembers_its_older_tasks,
            a_task_without_configurations_owes_nothing,
            a_configuration_is_told_what_comes_after_it,
            a_configuration_comes_with_its_message,
            a_held_task_owes_from_its_showing_on,
            a_direct_reply_takes_its_configurations_along,
            only_those_who_asked_are_told_of_chunks,
            a_configuration_is_leased_once,
            a_stale_holder_settles_nothing,
            what_is_logged_while_it_is_told_is_owed,
            a_configuration_that_was_put_off_waits,
            a_configuration_that_rests_is_not_due,
            a_lease_to_tell_runs_out,
            a_replaced_configuration_goes_on,
            a_configuration_that_is_set_again_is_the_same,
            nobody_tells_beside_a_holder,
            one_that_is_made_again_is_another,
            changes_that_come_together_add_up,
            a_removed_configuration_is_gone,
            a_task_has_only_so_many_configurations,
            what_does_not_answer_holds_up_nobody_else,
            a_claim_visits_only_so_many_receivers,
            a_dead_letter_is_sent_again,
            configurations_are_listed_in_pages,
            others_configurations_do_not_exist,
            configurations_count_as_stored,
            a_task_goes_with_all_that_is_its_own,
            a_log_goes_before_its_task,
            what_somebody_needs_stays,
            a_task_that_owes_a_cancel_stays_until_others_are_told,
            what_is_young_stays,
            a_step_is_small,
            a_key_is_free_when_its_task_went,
            a_task_is_deleted_at_once,
            a_context_is_deleted_with_all_its_tasks,
            a_tenant_is_deleted_with_all_that_is_its_own,
            a_step_of_a_tenants_deletion_looks_only_at_what_it_removes,
            a_lease_of_a_deleted_task_is_void,
            writing_goes_on_while_tasks_go,
            one_value_of_a_setting_wins,
            tenants_have_names_of_their_own,
            tokens_live_until_they_expire,
            settings_can_be_replaced,
            one_of_two_replaces_a_setting,
            a_tenant_keeps_one_card_of_an_agent,
            a_tenant_defines_agents_of_its_own,
            every_change_of_an_agent_raises_the_revision,
            a_disabled_tenant_has_no_live_token,
            a_revoked_token_is_gone_for_good,
            rotation_leaves_one_live_token,
            a_refused_change_is_not_audited,
            every_change_is_audited,
            a_token_remembers_when_it_was_used,
            one_look_finds_a_token_its_tenant_and_its_reach,
            of_many_tokens_those_that_live_are_told,
            every_change_of_who_may_call_raises_a_number,
            administrators_have_tokens_of_their_own,
            lists_can_be_of_some_agents,
            room_can_be_for_one_tenant_or_for_all_but_some,
            usage_is_the_sum_of_what_is_stored,
            another_attempt_does_not_count_the_last_ones_artifacts,
            a_tenant_has_no_more_tasks_than_it_may,
            many_at_once_do_not_pass_the_bound,
            a_tenant_stores_no_more_than_it_may,
            entries_wait_for_whoever_asks,
            the_higher_comes_first_then_the_older,
            a_delay_is_kept_unless_the_entry_is_named,
            an_entry_is_claimed_once_by_its_id,
            twenty_at_once_get_each_entry_once,
            entries_are_shared_among_tenants_only_by_who_serves_all,
            an_attempt_that_failed_waits_again_and_says_why,
            a_lease_that_ran_out_is_seen_and_nobody_is_called,
            a_lease_that_a_step_of_the_clock_ended_is_prolonged_once,
            a_claim_takes_no_more_bytes_than_it_has_room_for,
            a_queue_may_have_a_bound_on_what_is_held,
            many_at_once_do_not_hold_more_than_they_may,
            a_message_behind_an_entry_waits_for_whoever_asks_next,
            who_has_tried_too_often_is_a_dead_letter,
            a_canceled_entry_is_no_dead_letter,
            a_dead_letter_is_replayed_once_as_a_new_entry,
            dead_letters_come_in_pages_by_age,
            the_queue_tells_how_it_stands,
            a_write_may_say_what_it_goes_on_from,
            a_lease_of_the_queue_is_prolonged_by_its_holder,
            writing_can_be_proven,
            a_closed_store_takes_no_more,
        }
    };
}

macro_rules! list {
    ($($name:ident),* $(,)?) => {
        /// All cases by name.
        const CASES: &[(&str, fn(Arc<dyn Store>) -> Running)] = &[$((stringify!($name), |store| Box::pin($name(store)))),*];
    };
}

use accepting::*;
use canceling::*;
use claiming::*;
use credentials::*;
use folding::*;
use installation::*;
use leasing::*;
use pushing::*;
use queueing::*;
use reading::*;
use resting::*;
use retaining::*;
use turns::*;
use using::*;

for_each_conformance_case!(list);

/// Runs the case of that name on an empty store.
pub async fn run_case(name: &str, store: Arc<dyn Store>) {
    let (_, run) = CASES.iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("there is no case {name}"));
    run(store).await;
}
