"""Names of tools of public MCP servers without annotations: which of them change something."""

import pytest

from upwell.ground.types.cue import Cue
from upwell.surface.event import writes

WRITE = """
fs__write_file fs__edit_file fs__create_directory fs__move_file fs__save_file github__create_issue
github__push_files github__merge_pull_request github__add_issue_comment github__fork_repository
github__update_pull_request_branch github__submit_pending_pull_request_review github__issue_write
gitlab__create_merge_request slack__slack_post_message slack__slack_add_reaction
slack__slack_reply_to_thread chat__post_message sqlite__write_query sqlite__create_table
db__drop_table db__truncate_table db__alter_table notion__API-post-page notion__API-patch-page
notion__notion-update-page linear__create_issue linear__save_comment jira__jira_transition_issue
jira__jira_add_comment jira__jira_delete_issue memory__create_entities memory__add_observations
memory__delete_relations git__git_commit git__git_add git__git_reset redis__set redis__delete
redis__hset stripe__create_customer stripe__cancel_subscription stripe__create_refund
gmail__send_email gmail__modify_email gmail__draft_email calendar__create_event
calendar__delete_event drive__copyFile drive__shareFile kube__apply_manifest kube__scale_deployment
kube__uninstall_helm_chart aws__put_object mongo__insertMany mongo__dropCollection
mongo__updateMany supabase__apply_migration supabase__deploy_edge_function
sentry__update_issue figma__post_comment docker__stop_container docker__remove_image
todoist__close_task todoist__reopen_task trello__archive_card airtable__update_records
hubspot__create_contact discord__send_message telegram__send_message obsidian__append_content
""".split()
READ = """
fs__read_file fs__read_multiple_files fs__list_directory fs__directory_tree fs__search_files
fs__get_file_info github__get_issue github__list_commits github__search_code github__get_me
github__get_pull_request_diff github__list_merge_requests gitlab__get_merge_request
slack__slack_get_channel_history slack__slack_list_channels sqlite__read_query sqlite__list_tables
sqlite__describe_table db__query pg__query notion__API-get-self notion__notion-search
notion__notion-fetch linear__list_issues linear__get_issue jira__jira_search jira__jira_get_issue
memory__read_graph memory__search_nodes memory__open_nodes git__git_status git__git_diff
git__git_log git__git_show redis__get redis__scan_keys stripe__list_customers
stripe__search_documentation gmail__search_emails gmail__read_email calendar__list_events
drive__listFolder drive__searchFiles kube__list_pods kube__pod_logs aws__get_object
aws__list_buckets mongo__find mongo__aggregate mongo__countDocuments supabase__list_tables
supabase__get_advisors sentry__find_issues sentry__get_issue_details figma__get_figma_data
docker__list_containers docker__fetch_container_logs todoist__get_tasks trello__get_cards
airtable__list_records hubspot__get_contact context7__resolve-library-id
context7__get-library-docs brave__brave_web_search exa__web_search_exa firecrawl__firecrawl_scrape
tavily__tavily-search fetch__fetch time__get_current_time time__convert_time serena__find_symbol
serena__get_symbols_overview playwright__browser_snapshot obsidian__get_file_contents
""".split()


UNSEEN_WRITE = """
fs__rm fs__unlink fs__touch fs__new_file fs__chmod git__git_checkout git__git_rebase git__git_stash
git__git_init git__cherry_pick chat__react mail__forward_email calendar__book_meeting
tasks__complete_task tasks__finish_task docker__prune docker__start_container docker__build_image
redis__hset redis__expire browser__click browser__fill_form db__migrate db__run_migration
pod__exec_in_pod mail__trash_message work__pause_project pay__finalize_invoice pay__pay_invoice
fs__erase fs__mkdirs disk__wipe_disk host__reboot keys__rotate_key browser__browser_drag
""".split()
UNSEEN_READ = """
git__explain_commit git__diff_merge_base blog__post_count math__set_theory_lookup
calendar__start_status books__book_search db__execute_sql db__run_query ci__build_info
git__list_tags code__type_definition lsp__type_hierarchy fs__preview_edit tickets__compare_updates
""".split()
"""Names that someone chose who had not read the lists, with some of our own."""

LATER_WRITE = """
playwright__browser_type playwright__browser_select_option playwright__browser_press_key
playwright__browser_file_upload playwright__browser_navigate playwright__browser_handle_dialog
playwright__browser_hover playwright__browser_resize chrome__navigate_page chrome__fill_form
chrome__handle_dialog chrome__emulate_network github__run_workflow github__rerun_failed_jobs
github__cancel_workflow_run github__request_copilot_review github__assign_copilot_to_issue
github__dismiss_notification github__mark_all_notifications_read
github__manage_repository_notification_subscription github__create_or_update_file
github__star_repository docker__run_container docker__recreate_container docker__pull_image
docker__container_run k8s__pods_run k8s__pods_exec k8s__resources_create_or_update
k8s__helm_install k8s__kubectl_apply k8s__kubectl_rollout k8s__install_helm_chart
k8s__port_forward redis__lpush redis__sadd redis__zadd redis__hdel redis__json_set redis__xadd
redis__rename redis__srem redis__zrem desktop__set_config_value desktop__start_process
desktop__interact_with_process desktop__force_terminate desktop__edit_block
atlassian__jira_link_to_epic atlassian__jira_batch_create_issues atlassian__confluence_add_label
atlassian__jira_add_worklog mobile__mobile_click_on_screen_at_coordinates
mobile__mobile_swipe_on_screen mobile__mobile_launch_app mobile__mobile_type_keys
mobile__mobile_open_url home__turn_on_light home__call_service spotify__play_track
spotify__skip_track qdrant__qdrant-store n8n__execute_workflow
""".split()
LATER_READ = """
playwright__browser_console_messages playwright__browser_network_requests
playwright__browser_take_screenshot playwright__browser_wait_for playwright__browser_tab_list
chrome__list_console_messages chrome__take_snapshot chrome__performance_analyze_insight
chrome__get_network_request github__get_job_logs github__list_workflow_runs
github__get_workflow_run_usage github__download_workflow_run_artifact
github__search_pull_requests github__get_file_contents github__list_starred_repositories
github__get_notification_details github__issue_read github__pull_request_read
docker__list_images docker__container_logs docker__container_inspect docker__container_stats
docker__list_volumes k8s__pods_list k8s__pods_log k8s__pods_get k8s__pods_top k8s__events_list
k8s__kubectl_describe k8s__explain_resource k8s__helm_list k8s__configuration_view redis__lrange
redis__hgetall redis__smembers redis__zrange redis__type redis__dbsize redis__json_get
redis__xrange redis__hexists redis__client_list desktop__read_process_output
desktop__list_sessions desktop__get_config desktop__list_processes desktop__get_usage_stats
atlassian__jira_get_transitions atlassian__jira_download_attachments
atlassian__confluence_search atlassian__jira_get_link_types atlassian__jira_get_worklog
mobile__mobile_list_available_devices mobile__mobile_take_screenshot
mobile__mobile_get_screen_size mobile__mobile_list_elements_on_screen home__get_state
home__get_history spotify__get_current_track spotify__search_tracks qdrant__qdrant-find
n8n__list_executions
""".split()
"""Names of ten public servers, with those for browsers, phones, workflows and containers, after
which the classes of verbs were made.
"""
HELD_OUT_WRITE = """
vercel__deploy_to_vercel vercel__add_domain cloudflare__kv_namespace_create
cloudflare__worker_put cloudflare__d1_database_delete cloudflare__r2_bucket_create
blender__set_texture blender__import_generated_asset unity__manage_gameobject
unity__execute_menu_item neon__run_sql_migration neon__prepare_database_migration
neon__complete_database_migration neon__reset_from_parent neon__provision_neon_auth
pagerduty__acknowledge_incident pagerduty__resolve_incident pagerduty__escalate_incident
pagerduty__snooze_incident grafana__patch_annotation grafana__silence_alert
grafana__add_activity_to_incident terraform__terraform_apply terraform__terraform_destroy
terraform__action_run terraform__attach_policy_set asana__asana_set_parent_for_task
asana__asana_add_followers asana__asana_create_project_status
clickup__clickup_start_time_tracking clickup__clickup_attach_task_file whatsapp__send_file
whatsapp__react_to_message whatsapp__block_contact shopify__refund_order shopify__fulfill_order
shopify__adjust_inventory airflow__trigger_dag_run airflow__clear_task_instances
airflow__unpause_dag jenkins__build_job jenkins__abort_build mongodb__drop-database
mongodb__rename-collection mongodb__atlas-connect-cluster mongodb__collection-insert
argocd__sync_application argocd__run_resource_action rollbar__resolve-item
jupyter__overwrite_cell_source jupyter__insert_cell ghidra__rename_function ida__patch_address
ida__set_comment stripe__finalize_invoice stripe__cancel_subscription
twilio__purchase_phone_number gitlab__play_pipeline_job gitlab__retry_pipeline
obs__toggle_input_mute obs__switch_scene zotero__import_item youtube__rate_video
""".split()
HELD_OUT_READ = """
vercel__list_deployments vercel__get_deployment_build_logs vercel__search_vercel_documentation
vercel__check_domain_availability cloudflare__kv_namespaces_list cloudflare__worker_get
cloudflare__d1_database_query cloudflare__query_worker_observability blender__get_scene_info
blender__get_viewport_screenshot blender__search_polyhaven_assets unity__read_console
unity__find_gameobjects neon__explain_sql_statement neon__describe_branch
neon__list_slow_queries neon__compare_database_schema neon__get_connection_string
pagerduty__list_oncalls pagerduty__get_incident pagerduty__get_related_incidents
grafana__query_prometheus grafana__list_alert_rules grafana__query_loki_logs
grafana__get_annotation_tags grafana__fetch_pyroscope_profile grafana__find_error_pattern_logs
grafana__generate_deeplink terraform__search_providers terraform__get_provider_details
terraform__terraform_plan terraform__list_workspaces terraform__get_run_details
asana__asana_typeahead_search asana__asana_get_stories_for_task clickup__get_workspace_hierarchy
clickup__clickup_get_time_entries whatsapp__get_last_interaction whatsapp__download_media
whatsapp__list_chats shopify__get_orders shopify__count_products airflow__get_dag_runs
airflow__fetch_import_errors jenkins__get_build_log jenkins__list_running_builds
mongodb__collection-schema mongodb__collection-indexes mongodb__db-stats mongodb__explain
mongodb__count argocd__get_application_resource_tree argocd__get_application_workload_logs
rollbar__get-top-items jupyter__read_cells ghidra__decompile_function ida__disassemble_function
ida__get_xrefs_to stripe__retrieve_balance gitlab__get_pipeline_job_output obs__get_scene_list
zotero__get_item_fulltext youtube__get_transcript youtube__list_comments
""".split()
"""Names of twenty other public servers, written before the classes and looked at afterwards."""


def taken_for_a_write(tool: str) -> bool:
    return bool(writes(Cue(door="tool", tool=tool)))


def test_precision_and_recall_over_forty_servers() -> None:
    found = [tool for tool in WRITE if taken_for_a_write(tool)]
    wrong = [tool for tool in READ if taken_for_a_write(tool)]
    assert len(found) / len(WRITE) >= 0.95, sorted({*WRITE} - {*found})
    assert len(found) / (len(found) + len(wrong)) >= 0.97, wrong


def test_names_that_the_lists_were_not_made_from() -> None:
    assert [tool for tool in UNSEEN_WRITE if not taken_for_a_write(tool)] == []
    assert [tool for tool in UNSEEN_READ if taken_for_a_write(tool)] == []


@pytest.mark.parametrize(
    ("writing", "reading", "recall"),
    [(LATER_WRITE, LATER_READ, 0.92), (HELD_OUT_WRITE, HELD_OUT_READ, 0.9)],
    ids=["later", "held out"],
)
def test_precision_and_recall_by_classes_of_verbs(
    writing: list[str], reading: list[str], recall: float
) -> None:
    found = [tool for tool in writing if taken_for_a_write(tool)]
    wrong = [tool for tool in reading if taken_for_a_write(tool)]
    assert len(found) / len(writing) >= recall, sorted({*writing} - {*found})
    assert wrong == []


@pytest.mark.parametrize(
    ("writing", "reading"),
    [
        ("browser_type", "lsp__type_definition"),
        ("browser__select", "db__select"),
        ("run_workflow", "run_query"),
        ("container_run", "list_run_details"),
        ("invoke_function", "invoke_shell"),
        ("resolve_incident", "resolve_symbol"),
        ("request_review", "request_info"),
        ("git_pull", "pull_request_diff"),
        ("redis__zadd", "redis__zrange"),
        ("import_item", "import_graph"),
        ("vote_on_answer", "vote_count"),
        ("helm_release_rollback", "helm_release_history"),
    ],
)
def test_a_verb_with_two_meanings_counts_in_company(writing: str, reading: str) -> None:
    assert taken_for_a_write(writing)
    assert not taken_for_a_write(reading)


@pytest.mark.parametrize(
    "tool",
    """
    Bash shell exec exec_command execute_command run_shell_command run_in_terminal run_terminal_cmd
    terminal__exec run_tests runTests execute_sql run_python_code
    """.split(),
)
def test_a_shell_is_no_write_tool(tool: str) -> None:
    """If it were one, no memory would surface at a failed command, and no output be shortened."""
    assert not taken_for_a_write(tool)
