# backward_sm90_wide's compiled kernels: one for each input type, without
# and with options; instances.cpp makes the list of them a table.
set(backward_sm90_wide_generated ${CMAKE_CURRENT_BINARY_DIR}/generated/backward_sm90/wide)
set(backward_sm90_wide_declarations "")
set(backward_sm90_wide_entries "")
set(type_Fp16 f16)
set(type_Bf16 bf16)
foreach(INSTANCE_ELEMENT Fp16 Bf16)
  foreach(INSTANCE_OPTIONS false true)
    string(TOLOWER "wide_${INSTANCE_ELEMENT}" INSTANCE_NAME)
    if(INSTANCE_OPTIONS)
      string(APPEND INSTANCE_NAME _options)
    endif()
    set(source ${backward_sm90_wide_generated}/${INSTANCE_NAME}.cu)
    configure_file(backward_sm90/wide/instance.cu.in ${source} @ONLY)
    flashcore_cuda_sources(backward_sm90_wide LISTED GROUP wide SOURCES ${source})
    if(flashcore_cuda_compiled)
      string(APPEND backward_sm90_wide_declarations "InstanceEntry ${INSTANCE_NAME}();\n")
      string(APPEND backward_sm90_wide_entries
        "      {{InputType::${type_${INSTANCE_ELEMENT}}, ${INSTANCE_OPTIONS}}, ${INSTANCE_NAME}()},\n")
    endif()
  endforeach()
endforeach()
configure_file(backward_sm90/wide/instance_list.hpp.in ${backward_sm90_wide_generated}/instance_list.hpp @ONLY)

flashcore_cuda_sources(backward_sm90_wide SOURCES backward_sm90/wide/rows.cu
  backward_sm90/wide/option_rows.cu)
target_sources(flashcore_objects PRIVATE backward_sm90/wide/instances.cpp)
set_source_files_properties(backward_sm90/wide/instances.cpp TARGET_DIRECTORY flashcore_objects
  PROPERTIES INCLUDE_DIRECTORIES ${backward_sm90_wide_generated})
